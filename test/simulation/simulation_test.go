package simulation

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestSeeds runs seeds, each of one family, and prints the end of the log of those that fail.
// SEEDS is their number; by default each family runs one of a sixteenth of its length. SEED selects
// one, whose whole log is printed.
func TestSeeds(t *testing.T) {
	oneAtATime(t)
	addr := redistest.Start(t, redistest.WithArgs("--databases", "2")).Addr
	all, one := uint64(number("SEEDS", 0)), uint64(number("SEED", 0))
	first, last, part := uint64(1), all, 1
	switch {
	case one > 0:
		first, last = one, one
	case all == 0:
		last, part = uint64(len(families())), 16
	}
	for seed := first; seed <= last; seed++ {
		fam := familyOf(seed)
		fam.steps /= part
		t.Run(fmt.Sprintf("%d %s", seed, fam.name), func(t *testing.T) {
			w := replay(t, addr, seed, fam)
			lines := w.log
			switch {
			case len(w.broken) > 0:
				broken := w.broken[:min(5, len(w.broken))]
				t.Errorf("%s\nreplay: make simulate-faults SEED=%d FAMILY=%q", strings.Join(broken, "\n"), seed, fam.name)
				if one == 0 {
					lines = lines[max(0, len(lines)-40):]
				}
			case one == 0:
				lines = nil
			}
			t.Logf("%d calls, %d jobs, hash %x\n%s", len(w.calls), len(w.jobs), w.hash(), strings.Join(lines, "\n"))
		})
	}
}

// TestASeedReplaysExactly: two runs of one seed have the same log.
func TestASeedReplaysExactly(t *testing.T) {
	oneAtATime(t)
	addr := redistest.Start(t, redistest.WithArgs("--databases", "2")).Addr
	for _, seed := range []uint64{2, 3, 13} {
		short := func() *family { f := familyOf(seed); f.steps /= 8; return f }
		one, two := replay(t, addr, seed, short()), replay(t, addr, seed, short())
		for i := range min(len(one.log), len(two.log)) {
			if one.log[i] != two.log[i] {
				t.Errorf("seed %d differs:\n%s\n%s", seed, one.log[i], two.log[i])
				break
			}
		}
		if one.hash() != two.hash() || len(one.log) < 50 {
			t.Errorf("seed %d: logs of %d and %d lines", seed, len(one.log), len(two.log))
		}
	}
}

// oneAtATime skips a test under the race detector. A simulation runs on one CPU, and virtual
// time determines which goroutine runs. The detector does not see that order, and its runtime
// shuffles goroutines, so that no seed would replay.
func oneAtATime(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("simulated time orders what the race detector takes for races, and its scheduler is random")
	}
}

// replay runs a seed, which is the only source of randomness.
func replay(t *testing.T, addr string, seed uint64, fam *family) *world {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	cryptotest.SetGlobalRandom(t, seed)
	return simulate(t, addr, seed, fam)
}

// familyOf returns the family that a seed belongs to, unless FAMILY names one.
func familyOf(seed uint64) *family {
	all := families()
	for _, f := range all {
		if f.name == os.Getenv("FAMILY") {
			return f
		}
	}
	return all[(seed-1)%uint64(len(all))]
}

func number(name string, otherwise int) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return otherwise
	}
	return n
}
