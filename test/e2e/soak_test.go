package e2e

import "os"

// soak selects the long forms of the tests.
var soak = os.Getenv("LLMGUARD_SOAK") == "1"

// either returns the first value in `make test` and the second in `make soak`.
func either[T any](short, long T) T {
	if soak {
		return long
	}
	return short
}
