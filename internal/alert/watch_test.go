package alert_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/alert"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

var shared *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.ForPackage(m, &shared)) }

const dollar = pricing.Nano(1_000_000_000)

// watch is a process that watches limits, with the alerts that it sent.
type watch struct {
	t      *testing.T
	rdb    *redis.Client
	books  *budget.Store
	limits []budget.Limit
	sent   []alert.Alert
	fails  bool
	*alert.Watcher
}

func newWatch(t *testing.T, limits ...budget.Limit) *watch {
	t.Helper()
	w := &watch{t: t, rdb: shared.Client(), limits: limits}
	err := w.rdb.FlushDB(t.Context()).Err()
	if err != nil {
		t.Fatal(err)
	}
	w.books = budget.New(redistest.DB(w.rdb), budget.Options{})
	w.restart()
	return w
}

// restart replaces the process by one that has seen no charges.
func (w *watch) restart() {
	w.Watcher = alert.New(alert.Options{
		Redis: redistest.DB(w.rdb), Budget: w.books, Limits: func(string, string) []budget.Limit { return w.limits },
		Send: func(_ context.Context, a alert.Alert) error {
			if w.fails {
				return errors.New("the target is down")
			}
			w.sent = append(w.sent, a)
			return nil
		},
	})
	w.SetRules(map[string][]alert.Rule{alert.Everyone: {{To: alert.Everyone, Thresholds: []int{50, 100}}}})
}

// spend charges a user under all limits: the cost, and 900,000 tokens.
func (w *watch) spend(user string, cost pricing.Nano) {
	w.t.Helper()
	call, all := ledger.Call{ID: wire.NewCallID(), Org: "acme", User: user, Key: "k1"}, budget.Amounts{
		Cost:   cost,
		Tokens: 900_000,
	}
	h, err := w.books.Hold(w.t.Context(), budget.Terms{Limits: w.limits, Call: call, Max: all})
	if err == nil {
		_, err = w.books.Settle(w.t.Context(), h, budget.Settlement{Actual: all})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.Charged("acme", user)
}

// look runs the process until it ends, which includes one check, and returns the alerts sent.
func (w *watch) look() string {
	w.t.Helper()
	ended, cancel := context.WithCancel(w.t.Context())
	cancel()
	err := w.Run(ended)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, a := range w.sent {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %d %s", a.Limit, a.Threshold, a.User)))
	}
	w.sent = nil
	return strings.Join(out, ", ")
}

func (w *watch) expect(what, want string) {
	w.t.Helper()
	got := w.look()
	if got != want {
		w.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func daily(amount pricing.Nano) budget.Limit {
	return budget.Limit{
		ID: "daily", Subject: budget.User, Metric: budget.Cost, Mode: budget.Enforce,
		Shape: budget.Shape{Kind: budget.Window, Amount: int64(amount), Window: 24 * time.Hour},
	}
}

// A process checks once more when it ends, so that the last calls are not missed.
func TestLastLookOfAProcess(t *testing.T) {
	w := newWatch(t, daily(10*dollar))
	w.expect("nothing was charged", "")
	w.spend("alice", 5*dollar)
	w.expect("half", "daily 50 alice")
	w.expect("nothing more was charged", "")
}

func TestRunLooksByItself(t *testing.T) {
	rdb, got := shared.Client(), make(chan alert.Alert, 1)
	err := rdb.FlushDB(t.Context()).Err()
	if err != nil {
		t.Fatal(err)
	}
	w := newWatch(t, daily(10*dollar))
	w.Watcher = alert.New(alert.Options{
		Redis: redistest.DB(rdb), Budget: w.books, Every: time.Millisecond, Limits: func(string, string) []budget.Limit { return w.limits },
		Send: func(_ context.Context, a alert.Alert) error { got <- a; return nil },
	})
	w.SetRules(map[string][]alert.Rule{"acme": {{To: "acme", Thresholds: []int{50}}}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	w.spend("alice", 6*dollar)
	if a := redistest.Came(t, got); a.To != "acme" || a.Threshold != 50 {
		t.Errorf("got %+v, want 50 for acme", a)
	}
	cancel()
	if err := redistest.Came(t, ended); err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
}

func TestWhatAnAlertSays(t *testing.T) {
	w := newWatch(t, daily(10*dollar))
	w.spend("alice", 6*dollar)
	open := ledger.Call{ID: wire.NewCallID(), Org: "acme", User: "alice"}
	_, err := w.books.Hold(t.Context(), budget.Terms{Limits: w.limits, Call: open, Max: budget.Amounts{Cost: 3 * dollar}})
	if err != nil {
		t.Fatal(err)
	}
	w.Charged("acme", "alice")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = w.Run(ended)
	if len(w.sent) != 1 {
		t.Fatalf("got %+v, want one alert", w.sent)
	}
	a := w.sent[0]
	if a.Org != "acme" || a.User != "alice" || a.Mode != budget.Enforce || a.Charged != 6*dollar || a.Amount != 10*dollar {
		t.Errorf("got %+v, want $6 of $10 charged: what is held does not count", a)
	}
	if a.Reset <= 0 || a.Reset > 25*time.Hour || time.Since(a.At) > time.Minute {
		t.Errorf("got at %s, reset %s, want now and within the window", a.At, a.Reset)
	}
}

// Only enforced or shadow money limits that count the org or this user are watched.
func TestLimitsThatAreWatched(t *testing.T) {
	with := func(change func(*budget.Limit)) budget.Limit {
		l := daily(10 * dollar)
		change(&l)
		return l
	}
	for name, tc := range map[string]struct {
		limit budget.Limit
		want  string
	}{
		"a user's":          {daily(10 * dollar), "daily 50 alice"},
		"the org's":         {with(func(l *budget.Limit) { l.Subject = budget.Org }), "daily 50"},
		"this user's own":   {with(func(l *budget.Limit) { l.Only = "alice" }), "daily 50 alice"},
		"in the shadow":     {with(func(l *budget.Limit) { l.Mode = budget.Shadow }), "daily 50 alice"},
		"another user's":    {with(func(l *budget.Limit) { l.Only = "bob" }), ""},
		"off":               {with(func(l *budget.Limit) { l.Mode = budget.Off }), ""},
		"a key's":           {with(func(l *budget.Limit) { l.Subject = budget.Key }), ""},
		"tokens, not money": {with(func(l *budget.Limit) { l.Metric, l.Shape.Amount = budget.Tokens, 1_000_000 }), ""},
	} {
		w := newWatch(t, tc.limit)
		w.spend("alice", 6*dollar)
		w.expect(name, tc.want)
	}
}

// A threshold is not reported again while the limit still counts the charges.
func TestPeriodOfAThreshold(t *testing.T) {
	calendar := func(unit string) budget.Shape {
		return budget.Shape{Kind: budget.Calendar, Amount: int64(10 * dollar), Calendar: unit}
	}
	window := func(d time.Duration) budget.Shape {
		return budget.Shape{Kind: budget.Window, Amount: int64(10 * dollar), Window: d}
	}
	for name, tc := range map[string]struct {
		shape    budget.Shape
		from, to time.Duration
	}{
		"a window of a day":    {window(24 * time.Hour), 23 * time.Hour, 24 * time.Hour},
		"a window of a second": {window(time.Second), 30 * time.Second, time.Minute},
		"a calendar day":       {calendar("day"), 0, 24 * time.Hour},
		"a calendar month":     {calendar("month"), 0, 31 * 24 * time.Hour},
	} {
		limit := daily(0)
		limit.Shape = tc.shape
		w := newWatch(t, limit)
		w.spend("alice", 6*dollar)
		w.look()
		marks, err := w.rdb.Keys(t.Context(), "lg:{acme}:alert:*").Result()
		if err != nil || len(marks) != 1 {
			t.Errorf("%s: got the marks %v, %v, want one", name, marks, err)
			continue
		}
		ttl := w.rdb.TTL(t.Context(), marks[0]).Val()
		if ttl <= tc.from || ttl > tc.to {
			t.Errorf("%s: got it reported again after %s, want %s to %s", name, ttl, tc.from, tc.to)
		}
	}
}

// An alert claimed by another process is left to it; if that process dies, the alert is sent
// after all.
func TestProcessThatDiesWhileItSends(t *testing.T) {
	w := newWatch(t, daily(10*dollar))
	w.spend("alice", 6*dollar)
	w.look()
	marks := w.rdb.Keys(t.Context(), "lg:{acme}:alert:*").Val()
	if len(marks) != 1 {
		t.Fatalf("got the marks %v, want one", marks)
	}
	err := w.rdb.Set(t.Context(), marks[0], "claimed", time.Minute).Err()
	if err != nil {
		t.Fatal(err)
	}
	w.Charged("acme", "alice")
	w.expect("while it is claimed", "")
	err = w.rdb.Del(t.Context(), marks[0]).Err()
	if err != nil {
		t.Fatal(err)
	}
	w.expect("after the claim ended, with no new charge", "daily 50 alice")
}

// An alert that could not be sent is sent at the next check, without a new charge.
func TestAlertThatIsNotTaken(t *testing.T) {
	w := newWatch(t, daily(10*dollar))
	w.fails = true
	w.spend("alice", 6*dollar)
	w.expect("the target is down", "")
	marks := w.rdb.Keys(t.Context(), "lg:{acme}:alert:*").Val()
	if len(marks) > 0 {
		t.Errorf("got the marks %v, want none: it was not sent", marks)
	}
	w.fails = false
	w.expect("the target is back", "daily 50 alice")
	w.expect("once", "")
}

// While Redis does not answer nothing is lost: those who were charged are checked again.
func TestRedisIsUnavailable(t *testing.T) {
	w := newWatch(t, daily(10*dollar))
	w.spend("alice", 6*dollar)
	err := w.rdb.Do(t.Context(), "acl", "setuser", "default", "-evalsha", "-eval").Err()
	if err != nil {
		t.Fatal(err)
	}
	got := w.look()
	err = w.rdb.Do(t.Context(), "acl", "setuser", "default", "+evalsha", "+eval").Err()
	if err != nil {
		t.Fatal(err)
	}
	if got != "" {
		t.Errorf("without scripts: got %q, want nothing", got)
	}
	w.expect("with scripts again", "daily 50 alice")
}

// Without a rule charges are not remembered; a new rule applies to later charges.
func TestRulesThatComeLater(t *testing.T) {
	w := newWatch(t, daily(10*dollar))
	w.SetRules(nil)
	w.spend("alice", 6*dollar)
	w.SetRules(map[string][]alert.Rule{"globex": {{To: "globex", Thresholds: []int{50}}}})
	w.spend("alice", dollar)
	w.SetRules(map[string][]alert.Rule{"acme": {{To: "acme", Thresholds: []int{50}}}})
	w.expect("before a charge", "")
	w.spend("alice", 1)
	w.expect("after one", "daily 50 alice")
}

// A restarted process does not repeat what was sent.
func TestRestartDoesNotRepeat(t *testing.T) {
	w := newWatch(t, daily(10*dollar))
	w.spend("alice", 10*dollar)
	w.expect("full", "daily 100 alice")
	w.restart()
	w.spend("alice", 0)
	w.expect("after a restart", "")
}

func TestTextOfAlerts(t *testing.T) {
	a := alert.Alert{Org: "acme", Limit: "month", Threshold: 80, Charged: 80 * dollar, Amount: 100 * dollar}
	for name, tc := range map[string]struct {
		change        func(*alert.Alert)
		with, without string
	}{
		"an org": {func(*alert.Alert) {}, "org acme has used 80% of its limit month: $80.00 of $100.00.", "refused"},
		"a user": {func(a *alert.Alert) { a.User = "alice" }, "user alice of org acme", "Further calls"},
		"all of it": {
			func(a *alert.Alert) { a.Threshold, a.Charged = 100, a.Amount },
			"Further calls wait or are refused", "shadow",
		},
		"in the shadow": {
			func(a *alert.Alert) { a.Threshold, a.Mode = 100, budget.Shadow }, "shadow mode",
			"Further calls",
		},
		"more than all":   {func(a *alert.Alert) { a.Threshold, a.Charged = 100, 2*a.Amount }, "200%", "shadow"},
		"less than cents": {func(a *alert.Alert) { a.Charged = 1 }, "$0.000000001 of $100.00", "refused"},
		"of nothing":      {func(a *alert.Alert) { a.Amount = 0 }, "of $0.00", "refused"},
	} {
		is := a
		tc.change(&is)
		got := is.Text()
		if !strings.Contains(got, tc.with) || strings.Contains(got, tc.without) {
			t.Errorf("%s: got %q, want %q and not %q", name, got, tc.with, tc.without)
		}
	}
}
