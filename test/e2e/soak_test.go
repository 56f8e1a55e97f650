package e2e

import (
	"os"
	"testing"
)

// soak selects the long forms of the tests.
var soak = os.Getenv("LLMGUARD_SOAK") == "1"

// onlyInSoak skips a test that has no short form.
func onlyInSoak(t *testing.T) {
	t.Helper()
	if !soak {
		t.Skip("takes minutes: `make soak` runs it")
	}
}

// either returns the first value in `make test` and the second in `make soak`.
func either[T any](short, long T) T {
	if soak {
		return long
	}
	return short
}
