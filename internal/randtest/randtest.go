// Package randtest seeds random tests. In `make test` they are the same in every run, so that
// only a change can make them fail. The long form (LLMGUARD_SOAK) uses a new seed each time, to
// find unexpected cases. LLMGUARD_SEED replays a seed.
package randtest

import (
	"flag"
	"os"
	"strconv"
	"testing"
	"time"
)

// Seed returns the seed of a test, and logs it.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	seed := uint64(1)
	text := os.Getenv("LLMGUARD_SEED")
	switch {
	case text != "":
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			tb.Fatalf("LLMGUARD_SEED: %v", err)
		}
		seed = given
	case Long():
		seed = uint64(time.Now().UnixNano())
	}
	tb.Logf("LLMGUARD_SEED=%d", seed)
	return seed
}

// Rapid seeds pgregory.net/rapid, for TestMain; the flag -rapid.seed takes precedence.
func Rapid() {
	if Long() {
		return
	}
	if f := flag.Lookup("rapid.seed"); f != nil {
		_ = f.Value.Set("1") // always a number
	}
}

// Rounds returns how often to try something: short, or long in the long form.
func Rounds(short, long int) int {
	if Long() {
		return long
	}
	return short
}

// Checks sets how many cases rapid tries, for TestMain; the flag -rapid.checks takes precedence.
func Checks(short, long int) {
	if f := flag.Lookup("rapid.checks"); f != nil {
		_ = f.Value.Set(strconv.Itoa(Rounds(short, long))) // always a number
	}
}

// Long reports whether the long form of tests runs: hours instead of minutes.
func Long() bool { return os.Getenv("LLMGUARD_SOAK") != "" }
