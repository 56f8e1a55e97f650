package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

const day = 24 * time.Hour

// begin holds a call of the org.
func (b *fixture) begin(c ledger.Call) *budget.Hold {
	b.t.Helper()
	c.ID, c.Org, c.Model, c.Provider, c.Endpoint = wire.NewCallID(), b.org, "gpt-4o", "openai", "chat.completions"
	h, err := b.Hold(b.t.Context(), budget.Terms{Call: c, Max: budget.Amounts{Cost: 1000}})
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// expire waits until the org's hold has expired.
func (b *fixture) expire() {
	b.t.Helper()
	redistest.Eventually(b.t, "the hold expires", func() bool {
		n, err := b.Expiry.Sweep(b.t.Context(), b.org)
		return err == nil && n > 0
	})
}

// read answers a query about yesterday, today and tomorrow.
func (b *fixture) read(q ledger.Query) *ledger.Report {
	b.t.Helper()
	q.Orgs = []string{b.org}
	q.From = time.Now().UTC().Truncate(day).Add(-day)
	q.To = q.From.Add(3 * day)
	r, err := ledger.Read(b.t.Context(), b.Ledger, q)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// sum adds up the entries that are kept.
func (b *fixture) sum(keep func(*ledger.Entry) bool) (all ledger.Sums) {
	b.t.Helper()
	err := b.Ledger.Entries(b.t.Context(), b.org, time.Time{}, time.Time{}, func(e ledger.Entry) error {
		if keep(&e) {
			all.Add(e.Sums())
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// spent settles calls of three users, two of them in wild runs, and an expired, a late, a corrected and
// a voided call.
func spent(t *testing.T) *fixture {
	t.Helper()
	b := newFixture(t, shared(t), budget.Options{Lease: time.Second, SumLabels: []string{"run"}})
	for i := range 60 {
		c := ledger.Call{User: fmt.Sprintf("user-%d", i%3), Key: fmt.Sprintf("k%d", i%3)}
		if i%3 > 0 {
			c.Labels = ledger.Labels(fmt.Sprintf("project=out%d,run=run-%d", i%2, i%5))
		}
		h := b.begin(c)
		status := 200
		if i%10 == 0 {
			status = 503
		}
		if i == 7 || i == 11 {
			b.expire()
		}
		var err error
		if i == 11 {
			err = b.Void(t.Context(), h)
		} else { // late, of call 7
			_, err = b.Settle(t.Context(), h, budget.Settlement{
				Actual: budget.Amounts{Cost: pricing.Nano(100 + i*i)}, Usage: pricing.Usage{Input: int64(i), Output: 2},
				Status: status, Estimated: i%7 == 0, Outcome: "completed",
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c := ledger.Call{Org: b.org, User: "user-1", Model: "gpt-4o", Labels: "run=run-1"}
	_, err := b.Adjust(t.Context(), ledger.Adjustment{ID: wire.NewCallID(), Call: c, Amount: -77, By: "ops", Reason: "test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func dims(t *testing.T, names string) []ledger.Dimension {
	t.Helper()
	by, err := ledger.ParseBy(names)
	if err != nil {
		t.Fatal(err)
	}
	return by
}

func parsed(t *testing.T, text string) ledger.Filter {
	t.Helper()
	f, err := ledger.ParseFilter(text, func(name string) bool { return name == "run" || name == "project" })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Whatever the source, rows, steps and totals add up to the ledger exactly.
func TestReportsAddUpToTheLedger(t *testing.T) {
	b := spent(t)
	all := b.sum(func(*ledger.Entry) bool { return true })
	for _, c := range []struct {
		by     string
		step   time.Duration
		source ledger.Source
	}{
		{"user", day, ledger.FromDays},
		{"user", time.Hour, ledger.FromHours},
		{"user", time.Minute, ledger.FromEntries},
		{"user", 0, ledger.FromDays},
		{"user,hour", 0, ledger.FromHours},
		{"org,model", day, ledger.FromDays},
		{"label:run", day, ledger.FromDays},
		{"label:run,day", 0, ledger.FromDays},
		{"label:run,hour", 0, ledger.FromEntries},
		{"label:run", time.Hour, ledger.FromEntries},
		{"label:project", day, ledger.FromEntries},
		{"user,label:run", day, ledger.FromEntries},
		{"run,month", 0, ledger.FromEntries},
	} {
		got := b.read(ledger.Query{By: dims(t, c.by), Step: c.step})
		var rows ledger.Sums
		var series pricing.Nano
		for _, row := range got.Rows {
			rows.Add(row.Sums)
			for _, n := range row.Series {
				series += n
			}
		}
		if got.Source != c.source || !got.Since.IsZero() {
			t.Errorf("%s by %s: got source %s since %v, want %s and all", c.by, c.step, got.Source, got.Since, c.source)
		}
		if got.Total != all || rows != all || c.step > 0 && series != all.Cost {
			t.Errorf("%s by %s: got %+v, rows %+v, series %d, want %+v", c.by, c.step, got.Total, rows, series, all)
		}
	}
	burns, err := b.Burns(t.Context(), b.org, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	called := b.sum(func(e *ledger.Entry) bool { return e.Kind != ledger.KindAdjust })
	for metric, want := range map[budget.Metric]int64{
		budget.Cost: int64(called.Cost), budget.Tokens: called.Input + called.Output, budget.Requests: called.Calls,
	} {
		limit := budget.Limit{ID: "day", Subject: budget.Org, Metric: metric, Shape: budget.Shape{Kind: budget.Window, Window: day}}
		if got := burns.Forecast(&limit, &budget.Status{Window: day}, ledger.Call{Org: b.org}).Spent; got != want {
			t.Errorf("the %s that a forecast continues: got %d, want %d", metric, got, want)
		}
	}
	classes := b.read(ledger.Query{By: dims(t, "class")})
	if classes.Total.Cost != all.Cost || len(classes.Rows) < 2 {
		t.Errorf("by class: got %d in %d rows, want %d", classes.Total.Cost, len(classes.Rows), all.Cost)
	}
}

// A filter gives the same sums from sums and from entries, and selects what it says.
func TestFilters(t *testing.T) {
	b := spent(t)
	for text, keep := range map[string]func(*ledger.Entry) bool{
		"user=user-1":                          func(e *ledger.Entry) bool { return e.User == "user-1" },
		"user!=user-1 model=gpt-*":             func(e *ledger.Entry) bool { return e.User != "user-1" },
		"run=run-1":                            func(e *ledger.Entry) bool { return e.Labels.Get("run") == "run-1" },
		"label:run=run-1 user=user-2":          func(e *ledger.Entry) bool { return e.Labels.Get("run") == "run-1" && e.User == "user-2" },
		"run=":                                 func(e *ledger.Entry) bool { return e.Labels.Get("run") == "" },
		"cost>0.000001 status>=400":            func(e *ledger.Entry) bool { return e.Cost > 1000 && e.Status >= 400 },
		"cost<=0":                              func(e *ledger.Entry) bool { return e.Cost <= 0 },
		"RUN-1":                                func(e *ledger.Entry) bool { return e.Labels.Get("run") == "run-1" },
		"tokens=9 outcome=completed":           func(e *ledger.Entry) bool { return e.Usage.Input == 7 },
		`kind=expire estimated="true"`:         func(e *ledger.Entry) bool { return e.Kind == ledger.KindExpire },
		"user=nobody":                          func(*ledger.Entry) bool { return false },
		"provider=openai endpoint=chat.* out1": func(e *ledger.Entry) bool { return e.Labels.Get("project") == "out1" },
	} {
		want := b.sum(keep)
		for _, by := range []string{"user", "label:run", "user,hour"} {
			for _, step := range []time.Duration{0, day, time.Hour, time.Minute} {
				got := b.read(ledger.Query{By: dims(t, by), Step: step, Filter: parsed(t, text)})
				if got.Total != want {
					t.Errorf("%s by %s and %s: got %+v from %s, want %+v", text, by, step, got.Total, got.Source, want)
				}
			}
		}
	}
}

func TestFilterErrors(t *testing.T) {
	for text, want := range map[string]string{
		"usr=alice":              "neither a label nor one of",
		"user>alice":             "only cost, tokens and status",
		"cost>much":              "expected dollars",
		"status=ok":              "whole number",
		`user="alice`:            "not closed",
		"user!alice":             "expected =",
		strings.Repeat("a ", 17): "at most 16",
	} {
		_, err := ledger.ParseFilter(text, func(string) bool { return false })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// Pages have each entry once, newest first; by cost they begin with the highest.
func TestSearchPages(t *testing.T) {
	b := spent(t)
	var want []string
	var most pricing.Nano
	err := b.Ledger.Recent(t.Context(), b.org, time.Time{}, time.Time{}, func(e ledger.Entry) error {
		if e.User == "user-2" {
			want, most = append(want, e.LedgerID), max(most, e.Cost)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	q := ledger.CallQuery{Org: b.org, Filter: parsed(t, "user=user-2"), Limit: 7}
	var got []string
	for range 10 {
		page, err := ledger.Search(t.Context(), b.Ledger, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			got = append(got, e.LedgerID)
		}
		q.Before = page.Next
		if q.Before == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	page, err := ledger.Search(t.Context(), b.Ledger, ledger.CallQuery{Org: b.org, Limit: 3, ByCost: true, Filter: parsed(t, "user=user-2")})
	if err != nil || len(page.Entries) != 3 || page.Entries[0].Cost != most || page.Next != "" {
		t.Errorf("by cost: got %+v, %v, want 3 beginning with %d", page, err, most)
	}
}

// Entries that were removed from the ledger are missing, and the answer says so; so it does for days before
// a label was summed.
func TestReportsSayWhatIsGone(t *testing.T) {
	b := spent(t)
	if err := b.rdb.XTrimMaxLen(t.Context(), "lg:{"+b.org+"}:ledger", 10).Err(); err != nil {
		t.Fatal(err)
	}
	if got := b.read(ledger.Query{By: dims(t, "label:project"), Step: time.Hour}); got.Since.IsZero() {
		t.Error("entries are gone: got no time before which they are")
	}
	if got := b.read(ledger.Query{By: dims(t, "label:run")}); !got.Since.IsZero() {
		t.Errorf("label run: got since %v, want all", got.Since)
	}
	b.SumLabels([]string{"run", "project"})
	if got := b.read(ledger.Query{By: dims(t, "label:project")}); got.Since.IsZero() {
		t.Error("label project has no sums: got no time before which they are missing")
	}
	h := b.begin(ledger.Call{User: "ann", Labels: "project=out1"})
	if _, err := b.Settle(t.Context(), h, budget.Settlement{Actual: budget.Amounts{Cost: 5}}); err != nil {
		t.Fatal(err)
	}
	if got := b.read(ledger.Query{By: dims(t, "label:project")}); got.Since.IsZero() {
		t.Error("label project has sums of a part of the day: got no time before which they are missing")
	}
}

// inRuns settles calls: two in run_a, one in run_b inside it, one in run_c that a label names "nightly",
// one with that label only, and one without anything.
func inRuns(t *testing.T) *fixture {
	t.Helper()
	b := newFixture(t, shared(t), budget.Options{Lease: time.Second, SumLabels: []string{"run"}})
	for i, one := range []ledger.Call{
		{Run: "run_a"}, {Run: "run_a"}, {Run: "run_a/run_b"}, {Run: "run_c", Labels: "run=nightly"}, {Labels: "run=nightly"}, {},
	} {
		one.User = "alice"
		st := budget.Settlement{Actual: budget.Amounts{Cost: 1 << i}, Usage: pricing.Usage{Input: 1}, Status: 200}
		if _, err := b.Settle(t.Context(), b.begin(one), st); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// A filter by a run has the calls of the runs inside it, and those that name it in a label.
func TestFilterByRun(t *testing.T) {
	b := inRuns(t)
	for text, want := range map[string]pricing.Nano{
		"run=run_a": 1 + 2 + 4, "run=run_b": 4, "run=run_a/run_b": 4, "run=run_*": 1 + 2 + 4 + 8, "run!=run_a": 8 + 16 + 32,
		"run=nightly": 8 + 16, "label:run=nightly": 8 + 16, "run=run_c": 8, "run=": 32, "run=*": 63, "run=a": 0, "RUN_B": 4,
	} {
		got := b.read(ledger.Query{By: dims(t, "run"), Filter: parsed(t, text), Step: day})
		if got.Total.Cost != want || got.Source != ledger.FromEntries {
			t.Errorf("%s: got %d from %s, want %d from entries", text, got.Total.Cost, got.Source, want)
		}
	}
}

// Without a label run, the filter knows runs only.
func TestFilterByRunWithoutLabel(t *testing.T) {
	f, err := ledger.ParseFilter("run=nightly", func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if e := (ledger.Entry{Call: ledger.Call{Labels: "run=nightly"}}); f.Fits(&e) {
		t.Error("got a call with a label of the ledger that is not configured, want none")
	}
	if e := (ledger.Entry{Call: ledger.Call{Run: "nightly/x"}}); !f.Fits(&e) {
		t.Error("the call of the run is missing")
	}
}
