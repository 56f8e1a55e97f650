package alert

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

const dollar = pricing.Nano(1_000_000_000)

// rig is several processes that watch the same limits.
type rig struct {
	t      *testing.T
	budget *budget.Store
	limits []budget.Limit
	all    []*Watcher
	calls  int

	mu    sync.Mutex
	sent  []Alert
	fails int // number of alerts that Send rejects
}

func newRig(t *testing.T, rules map[string][]Rule) *rig {
	rdb := redistest.Start(t).Client()
	r := &rig{t: t, budget: budget.New(redistest.DB(rdb), budget.Options{})}
	r.limits = []budget.Limit{
		{ID: "month", Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Calendar, Amount: int64(100 * dollar), Calendar: "month"}},
		{ID: "day", Subject: budget.User, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Window, Amount: int64(10 * dollar), Window: 24 * time.Hour}},
		{ID: "rate", Subject: budget.User, Metric: budget.Requests, Shape: budget.Shape{Kind: budget.Window, Amount: 2, Window: time.Hour}},
	}
	for range 3 {
		w := New(Options{Redis: redistest.DB(rdb), Budget: r.budget, Send: r.send, Limits: func(string, string) []budget.Limit { return r.limits }})
		w.SetRules(rules)
		r.all = append(r.all, w)
	}
	return r
}

func (r *rig) send(_ context.Context, a Alert) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fails > 0 {
		r.fails--
		return errors.New("redis is away")
	}
	r.sent = append(r.sent, a)
	return nil
}

// spend charges a user; a hold, which is not a charge, stays open at the same time.
func (r *rig) spend(user string, cost pricing.Nano) {
	r.t.Helper()
	r.calls++
	c := ledger.Call{ID: fmt.Sprintf("%026d", r.calls), Org: "acme", User: user}
	h, err := r.budget.Hold(r.t.Context(), budget.Terms{Limits: r.limits[:2], Call: c, Max: budget.Amounts{Cost: cost}})
	if err == nil {
		_, err = r.budget.Settle(r.t.Context(), h, budget.Settlement{Actual: budget.Amounts{Cost: cost}})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	for _, w := range r.all {
		w.Charged("acme", user)
	}
}

// look makes all processes check concurrently, and returns the alerts sent.
func (r *rig) look() (sent []string) {
	var wait sync.WaitGroup
	for _, w := range r.all {
		wait.Go(func() { w.lookAll(r.t.Context()) })
	}
	redistest.Wait(r.t, wait.Wait)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.sent {
		sent = append(sent, fmt.Sprintf("%s %s %s %d", a.To, a.Limit, a.User, a.Threshold))
	}
	r.sent = nil
	return sent
}

func (r *rig) expect(want ...string) {
	r.t.Helper()
	if got := r.look(); strings.Join(got, ",") != strings.Join(want, ",") {
		r.t.Errorf("told %q, want %q", got, want)
	}
}

// TestThresholds: each threshold is reported once, whichever process does it, for charges and
// not for holds.
func TestThresholds(t *testing.T) {
	r := newRig(t, map[string][]Rule{Everyone: {{To: Everyone, Thresholds: []int{50, 80, 100}}}})
	if _, err := r.budget.Hold(t.Context(), budget.Terms{Limits: r.limits[:2], Call: ledger.Call{ID: fmt.Sprintf("%026d", 999), Org: "acme", User: "alice"}, Max: budget.Amounts{Cost: dollar}}); err != nil {
		t.Fatal(err)
	}
	r.spend("alice", 4_900_000_000)
	r.expect()
	r.spend("alice", 100_000_000)
	r.expect("* day alice 50")
	r.expect()
	r.spend("alice", dollar)
	r.expect()
	r.spend("alice", 3*dollar) // 90 %
	r.expect("* day alice 80")
	r.spend("bob", 9*dollar) // passes two thresholds together: only the higher is reported
	r.expect("* day bob 80")
	r.spend("bob", dollar/2)
	r.expect()
}

// TestRulesOfOrgs: an org's own rule and the operator's are reported separately, and an org
// without either is not checked.
func TestRulesOfOrgs(t *testing.T) {
	r := newRig(t, map[string][]Rule{"acme": {{To: "acme", Thresholds: []int{10}}}, Everyone: {{To: Everyone, Thresholds: []int{20}}}})
	r.spend("alice", dollar)
	r.expect("acme day alice 10")
	r.spend("alice", dollar)
	r.expect("* day alice 20")
	for _, w := range r.all {
		w.SetRules(nil)
	}
	r.spend("alice", 5*dollar)
	r.expect()
}

// TestOrgLimit: a limit of the whole org is reported once, whichever user is charged.
func TestOrgLimit(t *testing.T) {
	r := newRig(t, map[string][]Rule{Everyone: {{To: Everyone, Thresholds: []int{50}}}})
	r.limits[1].Mode = budget.Off
	for n := range 10 {
		r.spend(fmt.Sprintf("user-%d", n), 6*dollar)
	}
	r.expect("* month  50")
}

// TestRaisedLimit: a raised limit counts as a new one, and is reported again.
func TestRaisedLimit(t *testing.T) {
	r := newRig(t, map[string][]Rule{Everyone: {{To: Everyone, Thresholds: []int{50}}}})
	r.spend("alice", 5*dollar)
	r.expect("* day alice 50")
	r.limits[1].Shape.Amount = int64(20 * dollar)
	r.spend("alice", 5*dollar)
	r.expect("* day alice 50")
}

// TestSendFails: an alert that could not be sent is sent later, once.
func TestSendFails(t *testing.T) {
	r := newRig(t, map[string][]Rule{Everyone: {{To: Everyone, Thresholds: []int{50}}}})
	r.fails = len(r.all)
	r.spend("alice", 5*dollar)
	for range 100 { // several processes may fail, and some may leave it to others
		if got := r.look(); len(got) > 0 {
			if len(got) != 1 {
				t.Errorf("told %q", got)
			}
			r.expect()
			return
		}
	}
	t.Error("it was never told")
}

func TestText(t *testing.T) {
	a := Alert{Org: "acme", User: "alice", Limit: "day", Threshold: 100, Charged: 10_012_300_000, Amount: 10 * dollar}
	want := "llmguard: user alice of org acme has used 100% of its limit day: $10.0123 of $10.00. Further calls wait or are refused until there is room."
	if got := a.Text(); got != want {
		t.Errorf("the text is %q, want %q", got, want)
	}
}
