package attack

import (
	"fmt"
	"slices"
	"time"

	"github.com/llmguard/llmguard/bench/budget/mock"
	"github.com/llmguard/llmguard/bench/budget/price"
)

const (
	probes   = 5                // calls that ask for what is left of a budget
	patience = 10 * time.Second // for capacity, after it should be back
	smallest = 1000             // a budget with less than a thousandth left is used up
)

// judge reconciles the gateway with what the mock sold.
func (a *Arena) judge(r *Result) error {
	a.Idle()
	a.outage.Store(false)
	m := a.Gateway.Manifest
	r.NoBudgets, r.NoLedger = m.Budgets == "none", m.Spent == nil
	if !r.NoBudgets {
		for user := range max(1, a.Setup.Users) {
			if err := a.probe(user, r); err != nil {
				return err
			}
		}
	}
	if err := a.reconcile(r); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r.Budget, r.Calls, r.AboveParallel = a.Setup.Budget, a.counts, a.above
	r.FalseRefusals += a.falsely
	for user := range max(1, a.Setup.Users) {
		r.Sold += a.sold(user, 0)
		r.Overspend += a.overspend(user)
	}
	if r.Failed() {
		r.Events = a.timeline()
	}
	return nil
}

// probe asks for nine tenths of what is left until it gets it. If it should have got it by then, it
// counts how many of five calls are refused, and waits some more.
func (a *Arena) probe(user int, r *Result) error {
	began := time.Now()
	grace := time.Duration(a.Gateway.Manifest.Settles)
	if a.killed.Load() {
		grace = time.Duration(a.Gateway.Manifest.Recovers)
	}
	judged, refused := false, false
	for a.Ctx.Err() == nil {
		passed := time.Since(began)
		c, err := a.rest(user)
		if err != nil {
			return err
		}
		if c.Output == 0 { // used up, or the ledger says so: then it is an overcharge
			if refused {
				r.BackAfter = max(r.BackAfter, passed.Seconds())
			}
			return nil
		}
		if a.ask(c) {
			r.BackAfter = max(r.BackAfter, passed.Seconds())
			return nil
		}
		refused = true
		if passed > grace && !judged {
			judged = true
			r.FalseRefusals++ // the one above
			for range probes - 1 {
				if !a.ask(c) {
					r.FalseRefusals++
				}
			}
		}
		if passed > grace+patience {
			r.BackAfter = -1
			return nil
		}
		a.Wait(250 * time.Millisecond)
	}
	return a.Ctx.Err()
}

func (a *Arena) ask(c Call) bool { return a.Call(c).Verdict == Served }

// rest is a call that may cost nine tenths of what is left of a user's budget, and costs little. Its
// output limit is 0 if nothing is left.
func (a *Arena) rest(user int) (Call, error) {
	charged := price.Nano(0)
	if a.window() == 0 {
		var err error
		charged, _, err = a.Gateway.Spent(a.Ctx, user)
		if err != nil {
			return Call{}, fmt.Errorf("ask what was spent: %w", err)
		}
	}
	a.mu.Lock()
	left := a.Setup.Budget - max(charged, a.sold(user, a.window()))
	a.mu.Unlock()
	m, _ := price.Of("gpt-4o")
	c := Call{User: user, Mock: func(int) mock.Behaviour { return mock.Behaviour{Output: 1} }}
	if left > a.Setup.Budget/smallest {
		c.Output = int(max(0, left*9/10-m.Input*ChatOverhead) / m.Output)
		c.Output = min(c.Output, 16000) // within the model's maximum
	}
	return c, nil
}

// window is the budget's, if it is short enough to matter.
func (a *Arena) window() time.Duration {
	if a.Setup.Window < time.Hour {
		return a.Setup.Window
	}
	return 0
}

// sold is what the mock sold to a user, in the last window if there is one. The arena is locked.
func (a *Arena) sold(user int, window time.Duration) price.Nano {
	total := price.Nano(0)
	for _, sale := range a.Mock.Sales() {
		if a.owner[sale.Marker] == user && (window == 0 || time.Since(sale.At) < window) {
			total += sale.Nano
		}
	}
	return total
}

// overspend is the most above the budget that was sold to a user, in any window. The arena is locked.
func (a *Arena) overspend(user int) price.Nano {
	sales := slices.DeleteFunc(a.Mock.Sales(), func(s mock.Sale) bool { return a.owner[s.Marker] != user })
	slices.SortFunc(sales, func(x, y mock.Sale) int { return x.At.Compare(y.At) })
	worst, first, total := price.Nano(0), 0, price.Nano(0)
	for _, sale := range sales {
		total += sale.Nano
		for a.window() > 0 && sale.At.Sub(sales[first].At) >= a.window() {
			total -= sales[first].Nano
			first++
		}
		worst = max(worst, total-a.Setup.Budget)
	}
	return worst
}

// reconcile compares the ledger with the sales, once the gateway has had its time to book them.
func (a *Arena) reconcile(r *Result) error {
	if r.NoLedger {
		return nil
	}
	limit := time.Now().Add(time.Duration(a.Gateway.Manifest.Settles))
	for {
		r.LedgerOff, r.Overcharge = 0, 0
		equal := true
		for user := range max(1, a.Setup.Users) {
			charged, _, err := a.Gateway.Spent(a.Ctx, user)
			if err != nil {
				return fmt.Errorf("ask what was spent: %w", err)
			}
			a.mu.Lock()
			off := charged - a.sold(user, 0)
			calls := a.calls
			a.mu.Unlock()
			if off.Abs() <= price.Nano(calls) { // a gateway may round each call
				off = 0
			}
			equal = equal && off == 0
			r.LedgerOff += off
			r.Overcharge += max(0, off)
		}
		if equal || time.Now().After(limit) {
			return nil
		}
		a.Wait(200 * time.Millisecond)
	}
}

// timeline adds the sales to the events. The arena is locked.
func (a *Arena) timeline() []Event {
	out := slices.Clone(a.events)
	for _, sale := range a.Mock.Sales() {
		at := sale.At.Sub(a.began).Seconds()
		out = append(out, Event{At: at, User: a.owner[sale.Marker], What: "sold", Nano: sale.Nano})
	}
	slices.SortStableFunc(out, func(x, y Event) int { return int((x.At - y.At) * 1e6) })
	return out
}

// refuseFalsely counts refusals that an attack saw itself.
func (a *Arena) refuseFalsely(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.falsely += n
}
