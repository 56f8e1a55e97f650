package budget

import "os"

// soak selects the long forms: minutes instead of seconds.
var soak = os.Getenv("LLMGUARD_SOAK") != ""

// rounds returns short, or the number for the long form.
func rounds(short, long int) int {
	if soak {
		return long
	}
	return short
}
