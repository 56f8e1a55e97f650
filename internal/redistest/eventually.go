package redistest

import (
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
)

// Bound is how long a test waits at most for an event or for an answer. A handler that waits for the rest of its test
// outlasts several calls of Eventually.
const Bound = 5 * time.Minute

// workBound is how long work may take that a test waits for: a load of calls, a program, a build.
func workBound() time.Duration {
	if os.Getenv("LLMGUARD_SOAK") != "" {
		return 3 * time.Hour
	}
	return 10 * time.Minute
}

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

// Came receives from a channel, at most for Bound: a test that waits without bound for what never comes hangs
// the run. On a failure it reports an error and returns the zero value. Handlers and goroutines may call it too.
func Came[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	v, late := within(Bound, c)
	if late != "" {
		t.Error(late)
	}
	return v
}

// Wait calls the Wait method of a group of goroutines, and ends the test if it takes more than 10 minutes (3 hours
// in long runs).
func Wait(t testing.TB, wait func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); wait() }()
	if _, late := within(workBound(), done); late != "" {
		t.Fatal(late)
	}
}

// within receives from a channel, or says who else waits.
func within[T any](bound time.Duration, c <-chan T) (v T, late string) {
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case v = <-c:
	case <-timer.C:
		var stacks strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		late = fmt.Sprintf("waited %s in vain; the goroutines are:\n%s", bound, &stacks)
	}
	return v, late
}
