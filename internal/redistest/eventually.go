package redistest

import (
	"testing"
	"time"
)

// Eventually waits until a condition holds that something else makes true.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		if holds() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("waited 2 minutes for: %s", what)
}

// Came receives from a channel, at most for 2 minutes: a test that waits without bound for what never comes
// hangs the run. On a failure it reports an error and returns the zero value.
func Came[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(2 * time.Minute):
		t.Error("waited 2 minutes for a channel")
	}
	return v
}
