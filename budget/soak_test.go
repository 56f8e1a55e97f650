package budget

import "os"

// soak selects long tests: minutes instead of seconds.
var soak = os.Getenv("LLMGUARD_SOAK") != ""

// rounds returns short, or long if soak is set.
func rounds(short, long int) int {
	if soak {
		return long
	}
	return short
}
