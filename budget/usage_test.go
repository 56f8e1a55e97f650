package budget

import (
	"slices"
	"testing"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// inRuns settles calls: two in run_a, one in run_b inside it, one in run_c that a label names "nightly",
// one with that label only, and one without anything.
func inRuns(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, shared(t), Options{Lease: time.Minute, LedgerLife: 400 * 24 * time.Hour})
	f.now.Store(yesterday().Add(10 * time.Hour).UnixMicro())
	for i, one := range []struct {
		run    RunPath
		labels Labels
	}{{run: "run_a"}, {run: "run_a"}, {run: "run_a/run_b"}, {"run_c", "run=nightly"}, {"", "run=nightly"}, {}} {
		c := f.call()
		c.User, c.Model, c.Run, c.Labels = "alice", "gpt-4o", one.run, one.labels
		h, err := f.Hold(t.Context(), Terms{Call: c, Max: cost(1000)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Settle(t.Context(), h, Settlement{Actual: cost(1 << i), Usage: pricing.Usage{Input: 1}, Status: 200})
		if err != nil {
			t.Fatal(err)
		}
		f.pass(20 * time.Minute)
	}
	return f
}

// A filter by a run has the calls of the runs inside it, and those that name it in a label.
func TestFilterByRun(t *testing.T) {
	f := inRuns(t)
	midnight := yesterday()
	for text, want := range map[string]pricing.Nano{
		"run=run_a": 1 + 2 + 4, "run=run_b": 4, "run=run_a/run_b": 4, "run=run_*": 1 + 2 + 4 + 8, "run!=run_a": 8 + 16 + 32,
		"run=nightly": 8 + 16, "label:run=nightly": 8 + 16, "run=run_c": 8, "run=": 32, "run=*": 63, "run=a": 0, "RUN_B": 4,
	} {
		got, err := f.Ledger.Spend(t.Context(), SpendQuery{
			Orgs: []string{f.org}, By: dims(t, "run"), Filter: parsed(t, text), From: midnight,
			To: midnight.Add(72 * time.Hour), Step: 24 * time.Hour,
		})
		if err != nil || got.Total.Cost != want || got.Source != FromEntries {
			t.Errorf("%s: got %d from %s, error %v, want %d from entries", text, got.Total.Cost, got.Source, err, want)
		}
	}
}

// Without a label run, the filter knows runs only.
func TestFilterByRunWithoutLabel(t *testing.T) {
	f, err := ParseFilter("run=nightly", func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if e := (Entry{Call: Call{Labels: "run=nightly"}}); f.Fits(&e) {
		t.Error("got a call with a label of the ledger that is not configured, want none")
	}
	if e := (Entry{Call: Call{Run: "nightly/x"}}); !f.Fits(&e) {
		t.Error("the call of the run is missing")
	}
}

// Usage by run has a line for each run and hour, and by what sums have it is the same from sums and entries.
func TestUsageByRun(t *testing.T) {
	f := inRuns(t)
	midnight := yesterday()
	q := UsageQuery{Org: f.org, From: midnight, To: midnight.Add(72 * time.Hour), Hours: true, By: dims(t, "run")}
	list, since, err := f.Ledger.Usage(t.Context(), q)
	if err != nil || !since.IsZero() {
		t.Fatalf("got since %v, error %v", since, err)
	}
	got := map[RunPath]pricing.Nano{}
	hours := map[int]int64{}
	for _, r := range list {
		got[r.Run] += r.Cost
		hours[r.Begin.Hour()] += r.Calls
	}
	want := map[RunPath]pricing.Nano{"run_a": 3, "run_a/run_b": 4, "run_c": 8, "": 48}
	for run, cost := range want {
		if got[run] != cost {
			t.Errorf("%q: got %d, want %d", run, got[run], cost)
		}
	}
	if len(got) != len(want) || hours[10] != 3 || hours[11] != 3 {
		t.Errorf("got runs %v and calls %v by hour, want %v, and 3 in each of the hours 10 and 11", got, hours, want)
	}

	for _, hours := range []bool{true, false} {
		q.Hours, q.By, q.Filter = hours, nil, parsed(t, "user=alice")
		sums, _, err := f.Ledger.Usage(t.Context(), q)
		if err != nil || q.FromEntries() {
			t.Fatalf("got from entries %t, error %v", q.FromEntries(), err)
		}
		q.Filter = parsed(t, "user=alice cost>0")
		entries, _, err := f.Ledger.Usage(t.Context(), q)
		if err != nil || !q.FromEntries() || len(sums) == 0 || !slices.Equal(sums, entries) {
			t.Errorf("hours %t: got %+v from entries, error %v, want %+v", hours, entries, err, sums)
		}
	}
}

// Usage from entries says what is no longer in the ledger.
func TestUsageSaysWhatIsGone(t *testing.T) {
	f := inRuns(t)
	if err := f.rdb.XTrimMaxLen(t.Context(), key(f.org, "ledger"), 2).Err(); err != nil {
		t.Fatal(err)
	}
	midnight := yesterday()
	q := UsageQuery{Org: f.org, From: midnight, To: midnight.Add(72 * time.Hour), By: dims(t, "run")}
	if _, since, err := f.Ledger.Usage(t.Context(), q); err != nil || since.IsZero() {
		t.Errorf("got since %v, error %v, want the time of the oldest entry", since, err)
	}
}

// The series of very many groups take no more memory than the entries behind them.
func TestSeriesAreSparse(t *testing.T) {
	s := &spending{q: &SpendQuery{By: dims(t, "user"), Step: time.Minute}, out: &Spend{Steps: 1000}, groups: map[string]*SpendGroup{}}
	for _, user := range []string{"a", "b", "c"} {
		s.add(&Call{Org: "acme", User: user}, s.q.From.Add(5*time.Minute), Sums{Cost: 7})
	}
	cells := 0
	for _, g := range s.groups {
		cells += len(g.Series)
	}
	if cells != 3 || s.groups["a"].Series[5] != 7 {
		t.Errorf("got %d amounts, %v, want one for each call", cells, s.groups["a"].Series)
	}
}

// A run is forecast by its own calls and those inside it, since it began; not if it expires before.
func TestForecastOfARun(t *testing.T) {
	now := time.Now()
	run := Run{Path: "run_a", Amount: 1000, Created: now.Add(-2 * time.Minute), Expires: now.Add(time.Hour)}
	b := &Burns{now: now, since: now.Add(-time.Hour)}
	for _, path := range []RunPath{"run_a", "run_a/run_b", "run_c", ""} {
		e := Entry{Call: Call{Run: path}, Kind: KindSettle, At: now.Add(-time.Minute)}
		e.Cost = 100
		b.entries = append(b.entries, e)
	}
	l := run.Limits()[0]
	st := Status{Amount: 1000, Used: 200, Window: l.Shape.Window}
	if f := b.Forecast(&l, &st, Call{}); !f.Known || f.Spent != 200 || f.UsedUp != 8*time.Minute {
		t.Errorf("got %+v, want 200 in 2m, used up in 8m", f)
	}
	run.Expires = now.Add(7 * time.Minute)
	l = run.Limits()[0]
	if f := b.Forecast(&l, &st, Call{}); f.Known {
		t.Errorf("got %+v for a run that expires before, want none", f)
	}
}
