package alert_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/alert"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// A run that reaches its budget is reported once for each amount, by one of the processes, until its end.
func TestRunReached(t *testing.T) {
	w := newWatch(t)
	run, _, err := w.books.Runs.Create(t.Context(), budget.NewRun{
		Run: budget.Run{Path: "run_a", Org: "acme", User: "alice", Key: "k1", Amount: 5 * dollar}, Life: time.Hour, Most: 9,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.limits = run.Limits()
	w.spendAs(run.Path, 3*dollar)
	var sent []string
	fails := 0
	process := func() *alert.Watcher {
		return alert.New(alert.Options{
			Redis: redistest.DB(w.rdb), Budget: w.books,
			SendRun: func(_ context.Context, r alert.Run) error {
				if fails > 0 {
					fails--
					return errors.New("the target is down")
				}
				sent = append(sent, fmt.Sprintf("%s %s of %s", r.ID(), r.Use.Spent, r.Amount))
				return nil
			},
		})
	}
	all := []*alert.Watcher{process(), process()}
	expect := func(what string, want ...string) {
		t.Helper()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, p := range all {
			if err := p.Run(ended); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(sent, want) {
			t.Errorf("%s: got %q, want %q", what, sent, want)
		}
		sent = nil
	}
	refused := func() {
		for _, p := range all {
			p.RunReached(run)
			p.RunReached(run)
		}
	}
	expect("no call was refused")
	fails = len(all)
	refused()
	expect("the target is down")
	expect("it is back", "run_a $3.000000000 of $5.000000000")
	refused()
	expect("further calls are refused")
	all = append(all, process())
	refused()
	expect("a new process")
	run, err = w.books.Runs.TopUp(t.Context(), run, "once", dollar, 0)
	if err != nil {
		t.Fatal(err)
	}
	refused()
	expect("with another amount", "run_a $3.000000000 of $6.000000000")
	for _, mark := range w.rdb.Keys(t.Context(), "lg:{acme}:alert:*").Val() {
		ttl := w.rdb.PTTL(t.Context(), mark).Val()
		if ttl <= time.Hour || ttl > time.Hour+budget.RunKept {
			t.Errorf("%s: got it kept for %s, want until an hour after the end of the run", mark, ttl)
		}
	}
}

// spendAs charges a run.
func (w *watch) spendAs(run ledger.RunPath, n pricing.Nano) {
	w.t.Helper()
	call := ledger.Call{ID: wire.NewCallID(), Org: "acme", User: "alice", Key: "k1", Run: run}
	all := budget.Amounts{Cost: n}
	h, err := w.books.Hold(w.t.Context(), budget.Terms{Limits: w.limits, Call: call, Max: all})
	if err == nil {
		_, err = w.books.Settle(w.t.Context(), h, budget.Settlement{Actual: all})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}
