package budget

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// A forecast continues the recent rate exactly, and says nothing where it would not come true.
func TestForecast(t *testing.T) {
	day := 24 * time.Hour
	calendar := Shape{Kind: Calendar, Amount: 1000, Calendar: "month"}
	bucket := Shape{Kind: Bucket, Amount: 1000, Refill: 600, Per: time.Hour}
	for name, c := range map[string]struct {
		shape       Shape
		metric      Metric
		mode        Mode
		used, spent int64
		over, reset time.Duration
		want        time.Duration
		known       bool
	}{
		"an even rate":                  {calendar, Cost, Enforce, 400, 100, time.Hour, 20 * day, 6 * time.Hour, true},
		"not before the reset":          {calendar, Cost, Enforce, 400, 100, time.Hour, 6 * time.Hour, 0, false},
		"just before the reset":         {calendar, Cost, Enforce, 400, 100, time.Hour, 6*time.Hour + 1, 6 * time.Hour, true},
		"rounded down to a nanosecond":  {calendar, Cost, Enforce, 0, 3, time.Second, day, 333_333_333_333, true},
		"used up":                       {calendar, Cost, Enforce, 1200, 100, time.Hour, day, 0, true},
		"nothing spent":                 {calendar, Cost, Enforce, 999, 0, time.Hour, day, 0, false},
		"only credits":                  {calendar, Cost, Enforce, 999, -5, time.Hour, day, 0, false},
		"off":                           {calendar, Cost, Off, 400, 100, time.Hour, day, 0, false},
		"a window that the rate fills":  {Shape{Kind: Window, Amount: 1000, Window: day}, Cost, Enforce, 400, 100, time.Hour, day, 6 * time.Hour, true},
		"a window that keeps up":        {Shape{Kind: Window, Amount: 2400, Window: day}, Cost, Enforce, 2000, 100, time.Hour, day, 0, false},
		"a fixed window":                {Shape{Kind: Fixed, Amount: 1000, Window: day}, Tokens, Shadow, 0, 500, 30 * time.Minute, day, time.Hour, true},
		"a bucket that drains":          {bucket, Cost, Enforce, 0, 100, 5 * time.Minute, 0, 100 * time.Minute, true},
		"a bucket that refills as fast": {bucket, Cost, Enforce, 900, 50, 5 * time.Minute, 0, 0, false},
		"a bucket that never refills":   {Shape{Kind: Bucket, Amount: 1000}, Cost, Enforce, 0, 100, time.Hour, Endless, 10 * time.Hour, true},
		"open calls":                    {Shape{Kind: Concurrent, Amount: 10}, Concurrency, Enforce, 9, 100, time.Hour, 0, 0, false},
		"amounts that would overflow":   {Shape{Kind: Calendar, Amount: MaxAmount, Calendar: "month"}, Cost, Enforce, 0, MaxAmount, time.Hour, day, time.Hour, true},
	} {
		l := Limit{ID: "l", Subject: Org, Metric: c.metric, Mode: c.mode, Shape: c.shape}
		s := Status{Used: c.used, Amount: c.shape.Amount, Reset: c.reset}
		got := l.Forecast(&s, c.spent, c.over)
		if got.UsedUp != c.want || got.Known != c.known {
			t.Errorf("%s: got %v, %v, want %v, %v", name, got.UsedUp, got.Known, c.want, c.known)
		}
	}
}

// The rate is that of the limit's own subject, models and metric, in the last twelfth of its window.
func TestBurns(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	entry := func(ago time.Duration, user, model string, cost int64) ledger.Entry {
		e := ledger.Entry{Call: ledger.Call{User: user, Model: model, Labels: "run=r1"}, Kind: ledger.KindSettle, At: now.Add(-ago)}
		e.Cost = pricing.Nano(cost)
		e.Usage.Output = 7
		return e
	}
	b := &Burns{now: now, since: now.Add(-time.Hour), entries: []ledger.Entry{
		entry(time.Minute, "alice", "gpt-4o", 100), entry(6*time.Minute, "alice", "o3", 50),
		entry(2*time.Minute, "bob", "gpt-4o", 1000), entry(50*time.Minute, "alice", "gpt-4o", 9),
	}}
	for name, c := range map[string]struct {
		subject Subject
		metric  Metric
		window  time.Duration
		models  []string
		spent   int64
		over    time.Duration
	}{
		"five minutes":     {User, Cost, 30 * time.Minute, nil, 100, 5 * time.Minute},
		"a twelfth":        {User, Cost, 2 * time.Hour, nil, 150, 10 * time.Minute},
		"at most an hour":  {User, Cost, 24 * time.Hour * 30, nil, 159, time.Hour},
		"of a model":       {User, Cost, 24 * time.Hour, []string{"gpt-*"}, 109, time.Hour},
		"of the org":       {Org, Cost, 30 * time.Minute, nil, 1100, 5 * time.Minute},
		"calls of a label": {"run", Requests, 24 * time.Hour, nil, 4, time.Hour},
		"tokens":           {User, Tokens, 24 * time.Hour, nil, 21, time.Hour},
	} {
		l := Limit{
			ID: "l", Subject: c.subject, Metric: c.metric, Models: c.models,
			Shape: Shape{Kind: Window, Amount: 1, Window: c.window},
		}
		got := b.Forecast(&l, &Status{Amount: 1, Window: c.window}, ledger.Call{User: "alice", Labels: "run=r1"})
		if got.Spent != c.spent || got.Over != c.over {
			t.Errorf("%s: got %d in %v, want %d in %v", name, got.Spent, got.Over, c.spent, c.over)
		}
	}
}

// A run is forecast by its own calls and those inside it, since it began; not if it expires before.
func TestForecastOfARun(t *testing.T) {
	now := time.Now()
	run := Run{Path: "run_a", Amount: 1000, Created: now.Add(-2 * time.Minute), Expires: now.Add(time.Hour)}
	b := &Burns{now: now, since: now.Add(-time.Hour)}
	for _, path := range []ledger.RunPath{"run_a", "run_a/run_b", "run_c", ""} {
		e := ledger.Entry{Call: ledger.Call{Run: path}, Kind: ledger.KindSettle, At: now.Add(-time.Minute)}
		e.Cost = 100
		b.entries = append(b.entries, e)
	}
	l := run.Limits()[0]
	st := Status{Amount: 1000, Used: 200, Window: l.Shape.Window}
	if f := b.Forecast(&l, &st, ledger.Call{}); !f.Known || f.Spent != 200 || f.UsedUp != 8*time.Minute {
		t.Errorf("got %+v, want 200 in 2m, used up in 8m", f)
	}
	run.Expires = now.Add(7 * time.Minute)
	l = run.Limits()[0]
	if f := b.Forecast(&l, &st, ledger.Call{}); f.Known {
		t.Errorf("got %+v for a run that expires before, want none", f)
	}
}
