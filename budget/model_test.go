package budget

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/llmguard/llmguard/lua"
)

// runHistory does steps random things; an error comes with the way there.
func runHistory(t testing.TB, rdb *redis.Client, sc scripts, steps int, choose func(int) int) error {
	charge := []string{ChargeMax, ChargeExpected}[choose(2)]
	f := newFixture(t, rdb, Options{Lease: 30 * time.Second, ExpiredCharge: charge})
	f.scripts = sc
	h := newHistory(t.Context(), f, choose)
	for range steps {
		if err := h.step(); err != nil {
			return fmt.Errorf("%w\n%s", err, strings.Join(h.trace, "\n"))
		}
	}
	if err := h.finish(); err != nil {
		return fmt.Errorf("at the end: %w\n%s", err, strings.Join(h.trace, "\n"))
	}
	return nil
}

// TestHistories compares random histories with the oracle. LLMGUARD_HISTORIES
// sets their number; -rapid.seed replays one.
func TestHistories(t *testing.T) {
	rdb := shared(t)
	rapid.Check(t, func(rt *rapid.T) {
		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "choice") }
		if err := runHistory(t, rdb, loaded, 40, choose); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestLongHistories draws plainly, for many more and longer histories.
func TestLongHistories(t *testing.T) {
	n := 60
	if text := os.Getenv("LLMGUARD_HISTORIES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("LLMGUARD_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	rdb := shared(t)
	for i := range n {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		if err := runHistory(t, rdb, loaded, 120, rng.IntN); err != nil {
			t.Fatalf("LLMGUARD_SEED=%d history %d: %v", seed, i, err)
		}
	}
}

// The same on miniredis, once: `dev` may run on it.
func TestHistoriesOnMiniredis(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		for i := range 6 {
			rng := rand.New(rand.NewPCG(7, uint64(i)))
			if err := runHistory(t, rdb, loaded, 80, rng.IntN); err != nil {
				t.Fatalf("history %d: %v", i, err)
			}
		}
	})
}

var _ = lua.Load
