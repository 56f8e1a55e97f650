package budget

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/lua"
)

// runHistory takes random steps; an error includes the steps that led to it.
func runHistory(t testing.TB, rdb *redis.Client, sc scripts, steps int, choose func(int) int) error {
	charge := []string{ChargeMax, ChargeExpected}[choose(2)]
	parts := []int{1, 1, 2, 16}[choose(4)]
	f := newFixture(t, rdb, Options{
		Lease: 30 * time.Second, ExpiredCharge: charge, Spread: func(string) Spread { return Spread{Parts: parts, By: User} },
	})
	f.runner.scripts = sc
	h := newHistory(t.Context(), f, choose)
	if parts > 1 {
		h.limitUsersOnly()
	}
	for range steps {
		if err := h.step(); err != nil {
			return fmt.Errorf("%w\n%s", err, strings.Join(h.trace, "\n"))
		}
		if h.coarse {
			return nil
		}
	}
	if err := h.finish(); err != nil {
		return fmt.Errorf("at the end: %w\n%s", err, strings.Join(h.trace, "\n"))
	}
	return nil
}

// TestHistories compares random histories with the oracle; -rapid.seed replays one.
func TestHistories(t *testing.T) {
	rdb := shared(t)
	rapid.Check(t, func(rt *rapid.T) {
		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "choice") }
		if err := runHistory(t, rdb, loaded, 40, choose); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestLongHistories runs longer histories with a plain random generator. LLMGUARD_SEED replays
// them.
func TestLongHistories(t *testing.T) {
	seed, rdb := randtest.Seed(t), shared(t)
	for i := range randtest.Rounds(10, 4000) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		if err := runHistory(t, rdb, loaded, 120, rng.IntN); err != nil {
			t.Fatalf("LLMGUARD_SEED=%d history %d: %v", seed, i, err)
		}
	}
}

// TestHistoriesOnMiniredis runs histories on miniredis, because dev may run on it.
func TestHistoriesOnMiniredis(t *testing.T) {
	rdb := onMiniredis(t)
	for i := range randtest.Rounds(2, 100) {
		rng := rand.New(rand.NewPCG(7, uint64(i)))
		if err := runHistory(t, rdb, loaded, 80, rng.IntN); err != nil {
			t.Fatalf("history %d: %v", i, err)
		}
	}
}

// broken loads the scripts with one piece of their text replaced.
func broken(t *testing.T, old, replacement string) scripts {
	files := fstest.MapFS{}
	found := false
	entries, err := fs.ReadDir(lua.Files(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := fs.ReadFile(lua.Files(), e.Name())
		if err != nil {
			t.Fatal(err)
		}
		found = found || strings.Contains(string(text), old)
		files[e.Name()] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(string(text), old, replacement))}
	}
	if !found {
		t.Fatalf("no script has %q", old)
	}
	return loadAll(files)
}

// mistake is a deliberate mistake in the scripts that a comparison must detect.
type mistake struct {
	name, old, new string
	at             int // number of the history that reveals it, tried first
}

// notice runs up to n histories with each mistake until one of them fails.
func notice(t *testing.T, n int, list []mistake, run func(sc scripts, i int) error) {
	for _, m := range list {
		t.Run(m.name, func(t *testing.T) {
			sc := broken(t, m.old, m.new)
			for k := range n {
				i := (m.at + k) % n
				if err := run(sc, i); err != nil {
					first, _, _ := strings.Cut(err.Error(), "\n")
					t.Logf("history %d: %s", i, first)
					return
				}
			}
			t.Errorf("not noticed in %d histories", n)
		})
	}
}

// TestOracleNotices proves that the oracle test can fail: every one of these
// mistakes must be found.
func TestOracleNotices(t *testing.T) {
	rdb := shared(t)
	notice(t, 200, []mistake{
		{"ring of 60 slots", "slot - cur > 60", "slot - cur > 59", 3},
		{"slots freed one early", "for i = cur + 1, slot do fields[i - cur]", "for i = cur + 2, slot + 1 do fields[i - cur - 1]", 8},
		{"one too many", "elseif want.over > 0 and", "elseif want.over > 1 and", 1},
		{"counted twice when repeated", "elseif open[i] then", "elseif false then", 0},
		{"refund from a slot that left", "if i <= st.cur and st.cur - i <= 60 and not st.wipe then", "if true then", 1},
		{"refund of what has drained", "local i, least, g = first(st, place + 0)", "local i, least, g = first(st, place + 0)\n        least = st.used", 38},
		{"refund down to a fraction", "if g > 0 then finer(", "if g < 0 then finer(", 38},
		{"refund that leaves the dips", "lower(st, i, minus, least)", "if low < wanted then lower(st, i, minus, least) end", 116},
		{"fraction of the refill lost", "f = x - drained * p", "f = 0", 6},
		{"refill counted twice when time stands still", "if elapsed > 0 and r1 ~= '0' and used > 0 then", "if elapsed >= 0 and r1 ~= '0' and used > 0 then\n        elapsed = elapsed + 3000", 1},
		{"debt forgotten", "if want > had then", "if want > had and had < 0 then", 0},
		{"exact window one microsecond short", "st.cut = st.now - p1", "st.cut = st.now - p1 + 1", 13},
		{"time goes back in the exact window", "st.now = max(now + lead, last)", "st.now = now + lead", 6},
		{"the exact window's lead is forgotten", "if lead > 0 then st.lead = lead end", "", 1},
		{"the ring's lead is forgotten", "if st.lead then text = text .. ',' .. st.lead end", "", 1},
		{"the bucket's lead is forgotten", "(st.lead and ':' .. num(st.lead) or '')", "''", 5},
		{"the ring leads by a slot too many", "lead = num(cur - 1 - slot", "lead = num(cur - slot", 1},
		{"period ends when the clock goes back", "if now < to + 0 then", "if now < to + 0 and now >= from + 0 then", 1},
		{"no tombstone", "call('HSET', done, id, text)", "", 1},
		{"no tombstone of a settled hold", "call('HSET', done, unpack(tombs))", "", 0},
		{"nothing goes back from a settled hold", "part.place, had, min(had, want), true,", "part.place, had, had, true,", 0},
		{"a settled hold stays held", "part.place, had, min(had, want), true,", "part.place, had, min(had, want), false,", 0},
		{"expired holds stay held", "text = regrade_all(ending, text, want_of, true)", "", 0},
		{"concurrency forgets holds that nobody expired", "'(' .. num(now - FORGOTTEN_US), '+inf')", "'(' .. num(now), '+inf')", 0},
	}, func(sc scripts, i int) error {
		return runHistory(t, rdb, sc, 80, rand.New(rand.NewPCG(11, uint64(i))).IntN)
	})
}
