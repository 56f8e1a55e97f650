package budget

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// yesterday is the last midnight but one: entries are found by Redis's time, but counted by the fake
// one.
func yesterday() time.Time { return time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1) }

// spent settles calls of three users, two of them in wild runs, and an expired, a late, a corrected and
// a voided call, over two days.
func spent(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, shared(t), Options{Lease: time.Minute, LedgerLife: 400 * 24 * time.Hour})
	f.now.Store(yesterday().Add(22*time.Hour + 30*time.Minute).UnixMicro())
	f.SumLabels([]string{"run"})
	for i := range 60 {
		c := f.call()
		c.User, c.Key = fmt.Sprintf("user-%d", i%3), fmt.Sprintf("k%d", i%3)
		c.Model, c.Provider, c.Endpoint = "gpt-4o", "openai", "chat.completions"
		if i%3 > 0 {
			c.Labels = Labels(fmt.Sprintf("project=p%d,run=run-%d", i%2, i%5))
		}
		h, err := f.Hold(t.Context(), Terms{Call: c, Max: cost(1000)})
		if err != nil {
			t.Fatal(err)
		}
		status := 200
		if i%10 == 0 {
			status = 503
		}
		switch i {
		case 7: // expires, and is settled late
			f.pass(2 * time.Minute)
			if _, err = f.Expiry.Sweep(t.Context(), f.org); err != nil {
				t.Fatal(err)
			}
		case 11:
			f.pass(2 * time.Minute)
			_, err = f.Expiry.Sweep(t.Context(), f.org)
			if err == nil {
				err = f.Void(t.Context(), h)
			}
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		_, err = f.Settle(t.Context(), h, Settlement{
			Actual: cost(int64(100 + i*i)), Usage: pricing.Usage{Input: int64(i), Output: 2}, Status: status,
			Estimated: i%7 == 0, Outcome: "completed",
		})
		if err != nil {
			t.Fatal(err)
		}
		f.pass(3 * time.Minute)
	}
	c := f.call()
	c.User, c.Model, c.Labels = "user-1", "gpt-4o", "run=run-1"
	_, err := f.Ledger.Adjust(t.Context(), Adjustment{ID: f.call().ID, Call: c, Amount: -77, By: "ops", Reason: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func dims(t *testing.T, names ...string) []Dimension {
	t.Helper()
	var out []Dimension
	for _, name := range names {
		d, err := DimensionOf(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	return out
}

func parsed(t *testing.T, text string) Filter {
	t.Helper()
	f, err := ParseFilter(text, func(name string) bool { return name == "run" || name == "project" })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Whatever the source, groups, steps and totals add up to the ledger exactly.
func TestSpendAddsUpToTheLedger(t *testing.T) {
	f := spent(t)
	var all Sums
	err := f.Ledger.Entries(t.Context(), f.org, time.Time{}, time.Time{}, func(e Entry) error {
		all.Add(e.Sums())
		return nil
	})
	if err != nil || all.Cost == 0 {
		t.Fatal(all, err)
	}
	midnight := yesterday()
	for _, c := range []struct {
		by     string
		step   time.Duration
		source string
	}{
		{"user", 24 * time.Hour, FromDays},
		{"user", time.Hour, FromHours},
		{"user", time.Minute, FromEntries},
		{"org,model", 24 * time.Hour, FromDays},
		{"label:run", 24 * time.Hour, FromDays},
		{"label:run", time.Hour, FromEntries},
		{"label:project", 24 * time.Hour, FromEntries},
		{"user,label:run", 24 * time.Hour, FromEntries},
	} {
		got, err := f.Ledger.Spend(t.Context(), SpendQuery{
			Orgs: []string{f.org}, By: dims(t, strings.Split(c.by, ",")...), From: midnight, To: midnight.Add(72 * time.Hour),
			Step: c.step, SummedLabel: "run",
		})
		if err != nil {
			t.Fatal(err)
		}
		var groups Sums
		var series pricing.Nano
		for _, g := range got.Groups {
			groups.Add(g.Sums)
			for _, n := range g.Series {
				series += n
			}
		}
		if got.Source != c.source || !got.Since.IsZero() {
			t.Errorf("%s by %s: got source %s since %v, want %s and all", c.by, c.step, got.Source, got.Since, c.source)
		}
		if got.Total != all || groups != all || series != all.Cost {
			t.Errorf("%s by %s: got %+v, groups %+v, series %d, want %+v", c.by, c.step, got.Total, groups, series, all)
		}
	}
}

// A filter gives the same sums from sums and from entries, and selects what it says.
func TestSpendFilters(t *testing.T) {
	f := spent(t)
	midnight := yesterday()
	for text, keep := range map[string]func(*Entry) bool{
		"user=user-1":                        func(e *Entry) bool { return e.User == "user-1" },
		"user!=user-1 model=gpt-*":           func(e *Entry) bool { return e.User != "user-1" },
		"run=run-1":                          func(e *Entry) bool { return e.Labels.Get("run") == "run-1" },
		"label:run=run-1 user=user-2":        func(e *Entry) bool { return e.Labels.Get("run") == "run-1" && e.User == "user-2" },
		"run=":                               func(e *Entry) bool { return e.Labels.Get("run") == "" },
		"cost>0.000001 status>=400":          func(e *Entry) bool { return e.Cost > 1000 && e.Status >= 400 },
		"cost<=0":                            func(e *Entry) bool { return e.Cost <= 0 },
		"RUN-1":                              func(e *Entry) bool { return e.Labels.Get("run") == "run-1" },
		"tokens=9 outcome=completed":         func(e *Entry) bool { return e.Usage.Input == 7 },
		`kind=expire estimated="true"`:       func(e *Entry) bool { return e.Kind == KindExpire },
		"user=nobody":                        func(*Entry) bool { return false },
		"provider=openai endpoint=chat.* p1": func(e *Entry) bool { return e.Labels.Get("project") == "p1" },
	} {
		var want Sums
		err := f.Ledger.Entries(t.Context(), f.org, time.Time{}, time.Time{}, func(e Entry) error {
			if keep(&e) {
				want.Add(e.Sums())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, by := range []string{"user", "label:run"} {
			for _, step := range []time.Duration{24 * time.Hour, time.Hour, time.Minute} {
				got, err := f.Ledger.Spend(t.Context(), SpendQuery{
					Orgs: []string{f.org}, By: dims(t, by), From: midnight, To: midnight.Add(72 * time.Hour), Step: step,
					Filter: parsed(t, text), SummedLabel: "run",
				})
				if err != nil || got.Total != want {
					t.Errorf("%s by %s and %s: got %+v from %s, %v, want %+v", text, by, step, got.Total, got.Source, err, want)
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
	f := spent(t)
	var want []string
	var most pricing.Nano
	err := f.Ledger.Recent(t.Context(), f.org, time.Time{}, time.Time{}, func(e Entry) error {
		if e.User == "user-2" {
			want, most = append(want, e.LedgerID), max(most, e.Cost)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	q := CallQuery{Org: f.org, Filter: parsed(t, "user=user-2"), Limit: 7}
	var got []string
	for range 10 {
		page, err := f.Ledger.Search(t.Context(), q)
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
	page, err := f.Ledger.Search(t.Context(), CallQuery{Org: f.org, Limit: 3, ByCost: true, Filter: parsed(t, "user=user-2")})
	if err != nil || len(page.Entries) != 3 || page.Entries[0].Cost != most || page.Next != "" {
		t.Errorf("by cost: got %+v, %v, want 3 beginning with %d", page, err, most)
	}
}

// Entries that were removed from the ledger are missing, and the answer says so.
func TestSpendSaysWhatIsGone(t *testing.T) {
	f := spent(t)
	rdb := f.rdb
	if err := rdb.XTrimMaxLen(t.Context(), key(f.org, "ledger"), 10).Err(); err != nil {
		t.Fatal(err)
	}
	midnight := yesterday()
	got, err := f.Ledger.Spend(t.Context(), SpendQuery{
		Orgs: []string{f.org}, By: dims(t, "label:project"), From: midnight, To: midnight.Add(72 * time.Hour), Step: time.Hour,
	})
	if err != nil || got.Since.IsZero() {
		t.Errorf("got %+v, %v, want a time before which entries are gone", got, err)
	}
}

// TestSpendSource: hours are summed for days only, so an older period is read from entries.
func TestSpendSource(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Hour)
	for _, c := range []struct {
		age  time.Duration
		want string
	}{{24 * time.Hour, FromHours}, {12 * 24 * time.Hour, FromHours}, {14 * 24 * time.Hour, FromEntries}, {30 * 24 * time.Hour, FromEntries}} {
		q := SpendQuery{From: now.Add(-c.age), To: now.Add(-c.age + 12*time.Hour), Step: time.Hour}
		if got := q.source(); got != c.want {
			t.Errorf("a period %v ago: got %s, want %s", c.age, got, c.want)
		}
	}
}
