package app

import (
	"context"
	"testing"
)

// TestNoJobBeforeTheTables checks that a worker claims nothing before the token tables are
// loaded, and ends when the process does.
func TestNoJobBeforeTheTables(t *testing.T) {
	warm, runs := make(chan struct{}), 0
	run := func(context.Context) error { runs++; return nil }
	over, end := context.WithCancel(t.Context())
	end()
	if err := after(over, warm, run); err != nil || runs != 0 {
		t.Errorf("without tables: %v, it ran %d times", err, runs)
	}
	close(warm)
	if err := after(t.Context(), warm, run); err != nil || runs != 1 {
		t.Errorf("with tables: %v, it ran %d times", err, runs)
	}
}
