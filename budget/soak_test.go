package budget

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// soak selects the long forms: minutes instead of seconds.
var soak = os.Getenv("LLMGUARD_SOAK") != ""

// rounds returns short, or the number for the long form.
func rounds(short, long int) int {
	if soak {
		return long
	}
	return short
}

// seedOf returns a seed for random histories: another one in every run, or the one
// in LLMGUARD_SEED.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("LLMGUARD_SEED")
	if text == "" {
		return uint64(time.Now().UnixNano())
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seed
}
