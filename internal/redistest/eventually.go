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
