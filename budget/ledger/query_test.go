package ledger

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

var shared *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.ForPackage(m, &shared)) }

// books are the ledger of a fresh org.
type books struct {
	*budget.Store
	t   *testing.T
	rdb *redis.Client
	org string
}

func newBooks(t *testing.T) *books {
	t.Helper()
	rdb := shared.Client()
	o := budget.Options{Lease: time.Second, SumLabels: []string{"run"}}
	return &books{budget.New(rdb, o), t, rdb, strings.ToLower(t.Name())}
}

// hold begins a call of the org.
func (b *books) hold(c budget.Call) *budget.Hold {
	b.t.Helper()
	c.ID, c.Org, c.Model, c.Provider, c.Endpoint = wire.NewCallID(), b.org, "gpt-4o", "openai", "chat.completions"
	h, err := b.Hold(b.t.Context(), budget.Terms{Call: c, Max: budget.Amounts{Cost: 1000}})
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// expire waits until the org's hold has expired.
func (b *books) expire() {
	b.t.Helper()
	redistest.Eventually(b.t, "the hold expires", func() bool {
		n, err := b.Expiry.Sweep(b.t.Context(), b.org)
		return err == nil && n > 0
	})
}

// read answers a query about yesterday, today and tomorrow.
func (b *books) read(q Query) *Report {
	b.t.Helper()
	q.Orgs = []string{b.org}
	q.From = time.Now().UTC().Truncate(wholeDay).Add(-wholeDay)
	q.To = q.From.Add(3 * wholeDay)
	r, err := Read(b.t.Context(), b.Ledger, q)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// sum adds up the entries that are kept.
func (b *books) sum(keep func(*budget.Entry) bool) (all budget.Sums) {
	b.t.Helper()
	err := b.Ledger.Entries(b.t.Context(), b.org, time.Time{}, time.Time{}, func(e budget.Entry) error {
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
func spent(t *testing.T) *books {
	t.Helper()
	b := newBooks(t)
	for i := range 60 {
		c := budget.Call{User: fmt.Sprintf("user-%d", i%3), Key: fmt.Sprintf("k%d", i%3)}
		if i%3 > 0 {
			c.Labels = budget.Labels(fmt.Sprintf("project=out%d,run=run-%d", i%2, i%5))
		}
		h := b.hold(c)
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
	c := budget.Call{Org: b.org, User: "user-1", Model: "gpt-4o", Labels: "run=run-1"}
	_, err := b.Ledger.Adjust(t.Context(), budget.Adjustment{ID: wire.NewCallID(), Call: c, Amount: -77, By: "ops", Reason: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func dims(t *testing.T, names string) []Dimension {
	t.Helper()
	by, err := ParseBy(names)
	if err != nil {
		t.Fatal(err)
	}
	return by
}

func parsed(t *testing.T, text string) Filter {
	t.Helper()
	f, err := ParseFilter(text, func(name string) bool { return name == "run" || name == "project" })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Whatever the source, rows, steps and totals add up to the ledger exactly.
func TestReportsAddUpToTheLedger(t *testing.T) {
	b := spent(t)
	all := b.sum(func(*budget.Entry) bool { return true })
	for _, c := range []struct {
		by     string
		step   time.Duration
		source Source
	}{
		{"user", wholeDay, FromDays},
		{"user", time.Hour, FromHours},
		{"user", time.Minute, FromEntries},
		{"user", 0, FromDays},
		{"user,hour", 0, FromHours},
		{"org,model", wholeDay, FromDays},
		{"label:run", wholeDay, FromDays},
		{"label:run,day", 0, FromDays},
		{"label:run,hour", 0, FromEntries},
		{"label:run", time.Hour, FromEntries},
		{"label:project", wholeDay, FromEntries},
		{"user,label:run", wholeDay, FromEntries},
		{"run,month", 0, FromEntries},
	} {
		got := b.read(Query{By: dims(t, c.by), Step: c.step})
		var rows budget.Sums
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
	classes := b.read(Query{By: dims(t, "class")})
	if classes.Total.Cost != all.Cost || len(classes.Rows) < 2 {
		t.Errorf("by class: got %d in %d rows, want %d", classes.Total.Cost, len(classes.Rows), all.Cost)
	}
}

// A filter gives the same sums from sums and from entries, and selects what it says.
func TestFilters(t *testing.T) {
	b := spent(t)
	for text, keep := range map[string]func(*budget.Entry) bool{
		"user=user-1":                          func(e *budget.Entry) bool { return e.User == "user-1" },
		"user!=user-1 model=gpt-*":             func(e *budget.Entry) bool { return e.User != "user-1" },
		"run=run-1":                            func(e *budget.Entry) bool { return e.Labels.Get("run") == "run-1" },
		"label:run=run-1 user=user-2":          func(e *budget.Entry) bool { return e.Labels.Get("run") == "run-1" && e.User == "user-2" },
		"run=":                                 func(e *budget.Entry) bool { return e.Labels.Get("run") == "" },
		"cost>0.000001 status>=400":            func(e *budget.Entry) bool { return e.Cost > 1000 && e.Status >= 400 },
		"cost<=0":                              func(e *budget.Entry) bool { return e.Cost <= 0 },
		"RUN-1":                                func(e *budget.Entry) bool { return e.Labels.Get("run") == "run-1" },
		"tokens=9 outcome=completed":           func(e *budget.Entry) bool { return e.Usage.Input == 7 },
		`kind=expire estimated="true"`:         func(e *budget.Entry) bool { return e.Kind == budget.KindExpire },
		"user=nobody":                          func(*budget.Entry) bool { return false },
		"provider=openai endpoint=chat.* out1": func(e *budget.Entry) bool { return e.Labels.Get("project") == "out1" },
	} {
		want := b.sum(keep)
		for _, by := range []string{"user", "label:run", "user,hour"} {
			for _, step := range []time.Duration{0, wholeDay, time.Hour, time.Minute} {
				got := b.read(Query{By: dims(t, by), Step: step, Filter: parsed(t, text)})
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
		_, err := ParseFilter(text, func(string) bool { return false })
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
	err := b.Ledger.Recent(t.Context(), b.org, time.Time{}, time.Time{}, func(e budget.Entry) error {
		if e.User == "user-2" {
			want, most = append(want, e.LedgerID), max(most, e.Cost)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	q := CallQuery{Org: b.org, Filter: parsed(t, "user=user-2"), Limit: 7}
	var got []string
	for range 10 {
		page, err := Search(t.Context(), b.Ledger, q)
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
	page, err := Search(t.Context(), b.Ledger, CallQuery{Org: b.org, Limit: 3, ByCost: true, Filter: parsed(t, "user=user-2")})
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
	if got := b.read(Query{By: dims(t, "label:project"), Step: time.Hour}); got.Since.IsZero() {
		t.Error("entries are gone: got no time before which they are")
	}
	if got := b.read(Query{By: dims(t, "label:run")}); !got.Since.IsZero() {
		t.Errorf("label run: got since %v, want all", got.Since)
	}
	b.SumLabels([]string{"run", "project"})
	if got := b.read(Query{By: dims(t, "label:project")}); got.Since.IsZero() {
		t.Error("label project has no sums: got no time before which they are missing")
	}
	h := b.hold(budget.Call{User: "ann", Labels: "project=out1"})
	if _, err := b.Settle(t.Context(), h, budget.Settlement{Actual: budget.Amounts{Cost: 5}}); err != nil {
		t.Fatal(err)
	}
	if got := b.read(Query{By: dims(t, "label:project")}); got.Since.IsZero() {
		t.Error("label project has sums of a part of the day: got no time before which they are missing")
	}
}

// TestSource: hours are summed for days only, so an older period in steps is read from entries.
func TestSource(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Hour)
	for _, c := range []struct {
		age  time.Duration
		want Source
	}{{wholeDay, FromHours}, {12 * wholeDay, FromHours}, {14 * wholeDay, FromEntries}, {30 * wholeDay, FromEntries}} {
		q := Query{From: now.Add(-c.age), To: now.Add(-c.age + 12*time.Hour), Step: time.Hour}
		if got, _ := q.source(func(string) bool { return false }); got != c.want {
			t.Errorf("a period %v ago: got %s, want %s", c.age, got, c.want)
		}
	}
}

// inRuns settles calls: two in run_a, one in run_b inside it, one in run_c that a label names "nightly",
// one with that label only, and one without anything.
func inRuns(t *testing.T) *books {
	t.Helper()
	b := newBooks(t)
	for i, one := range []budget.Call{
		{Run: "run_a"}, {Run: "run_a"}, {Run: "run_a/run_b"}, {Run: "run_c", Labels: "run=nightly"}, {Labels: "run=nightly"}, {},
	} {
		one.User = "alice"
		st := budget.Settlement{Actual: budget.Amounts{Cost: 1 << i}, Usage: pricing.Usage{Input: 1}, Status: 200}
		if _, err := b.Settle(t.Context(), b.hold(one), st); err != nil {
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
		got := b.read(Query{By: dims(t, "run"), Filter: parsed(t, text), Step: wholeDay})
		if got.Total.Cost != want || got.Source != FromEntries {
			t.Errorf("%s: got %d from %s, want %d from entries", text, got.Total.Cost, got.Source, want)
		}
	}
}

// Without a label run, the filter knows runs only.
func TestFilterByRunWithoutLabel(t *testing.T) {
	f, err := ParseFilter("run=nightly", func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if e := (budget.Entry{Call: budget.Call{Labels: "run=nightly"}}); f.Fits(&e) {
		t.Error("got a call with a label of the ledger that is not configured, want none")
	}
	if e := (budget.Entry{Call: budget.Call{Run: "nightly/x"}}); !f.Fits(&e) {
		t.Error("the call of the run is missing")
	}
}

// The series of very many groups take no more memory than the entries behind them.
func TestSeriesAreSparse(t *testing.T) {
	from := time.Now().UTC().Truncate(time.Hour)
	r := newReading(nil, &Query{By: By("user"), Step: time.Minute, From: from, To: from.Add(1000 * time.Minute)})
	for _, user := range []string{"a", "b", "c"} {
		r.add(&budget.Call{Org: "acme", User: user}, from.Add(5*time.Minute), true, budget.Sums{Cost: 7})
	}
	cells := 0
	for _, row := range r.rows {
		cells += len(row.Series)
		if row.Series[5] != 7 {
			t.Errorf("got %v, want the cost in step 5", row.Series)
		}
	}
	if cells != 3 {
		t.Errorf("got %d amounts, want one for each call", cells)
	}
}
