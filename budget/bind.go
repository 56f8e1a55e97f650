package budget

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// maxLimits is the maximum number of limits that apply to one call, besides the counters of its brakes,
// of which the configuration admits 32.
const maxLimits = 50

// binder selects the limits that apply to a call and decodes their rows in answers.
type binder struct {
	lease  time.Duration // lease of holds: how long limits on concurrency count them
	places *places
}

// bind selects the limits that apply to the call and names their states.
func (b binder) bind(limits []Limit, c ledger.Call) ([]Limit, []state, error) {
	own := concerning(limits, c)
	states := make([]state, 0, len(own))
	for i := range own {
		l := &own[i]
		if err := l.Validate(); err != nil {
			return nil, nil, err
		}
		st := l.stateFor(c, b.lease)
		for j := range states {
			if states[j].Key == st.Key {
				return nil, nil, fmt.Errorf("budget: limit %q is given twice", l.ID)
			}
		}
		states = append(states, st)
	}
	told := told(own)
	if told > maxLimits {
		return nil, nil, fmt.Errorf("budget: %d limits for one call, at most %d", told, maxLimits)
	}
	return own, states, nil
}

// concerning selects the limits that apply to the call, each with the raises that apply. It returns
// the list itself when nothing is dropped, as for most calls.
func concerning(limits []Limit, c ledger.Call) []Limit {
	if !slices.ContainsFunc(limits, func(l Limit) bool { return !l.Counts(c) || len(l.Raises) > 0 }) {
		return limits
	}
	own := make([]Limit, 0, len(limits))
	for _, l := range limits {
		if !l.Counts(c) {
			continue
		}
		if len(l.Raises) > 0 {
			l.Raises = l.raisesOf(c)
		}
		own = append(own, l)
	}
	return own
}

// prepare validates the terms and returns the hold to request.
func (b binder) prepare(t *Terms) (*Hold, error) {
	c, most, expected := b.places.put(t.Call), t.Max, t.Expected
	if err := validateCall(c); err != nil {
		return nil, err
	}
	if err := most.validate("hold"); err != nil {
		return nil, err
	}
	if err := expected.validate("expected amount"); err != nil {
		return nil, err
	}
	expected = Amounts{Cost: min(expected.Cost, most.Cost), Tokens: min(expected.Tokens, most.Tokens)}
	h := &Hold{ID: c.HoldID(), Call: c, Max: most, Expected: expected}
	var err error
	h.limits, h.states, err = b.bind(t.Limits, c)
	return h, err
}

// unheld binds limits to a call that holds nothing.
func (b binder) unheld(limits []Limit, c ledger.Call) (*Hold, error) {
	if !ledger.ValidOrg(c.Org) {
		return nil, fmt.Errorf("budget: org id %q is empty or has braces or #", c.Org)
	}
	h := &Hold{Call: b.places.put(c)}
	var err error
	h.limits, h.states, err = b.bind(limits, c)
	return h, err
}

// statuses decodes the rows of an answer. want returns what the call requested of each limit.
func (b binder) statuses(h *Hold, a answer, want func(*Limit) int64) ([]Status, error) {
	if len(a.rows) != len(h.limits) {
		return nil, fmt.Errorf("budget: reply has %d limits, not %d", len(a.rows), len(h.limits))
	}
	out := make([]Status, len(h.limits))
	for i, l := range h.limits {
		out[i] = b.statusOf(l, h.states[i], want(&h.limits[i]), a.head[0], a.rows[i])
	}
	return out, nil
}

// statusOf converts a script's row to a Status. wanted is what the call requested of the limit.
func (b binder) statusOf(l Limit, st state, wanted, now int64, r row) Status {
	n := r.amounts(l, st, now, b.lease.Microseconds())
	used, resets, frees := n[0], n[2], n[3]
	amount, until := l.Shape.Amount, time.Time{}
	if len(l.Raises) > 0 {
		amount, until = l.amountAt(time.UnixMicro(now))
	}
	out := Status{
		LimitID: l.ID, Subject: l.Subject, Metric: l.Metric, Mode: l.mode(), Refused: n[4] == 1,
		Used: used, Held: max(0, min(n[1], used)), Amount: amount, Remaining: max(0, amount-used),
		Window: l.Shape.window(), Raised: amount - l.Shape.Amount, RaisedUntil: until,
	}
	excess := used + wanted - amount
	if out.Refused && l.Mode == Shadow {
		excess = used - amount // it was charged anyway
	}
	if st.Kind == "b" {
		fraction, clock := n[2], n[3]
		units, micros := l.Shape.rate()
		resets, frees = drained(used, fraction, units, micros, clock), drained(excess, fraction, units, micros, clock)
	}
	if l.Shape.Kind == Once {
		resets, frees = math.MaxInt64, math.MaxInt64
	}
	out.Reset = span(resets - now)
	if out.Refused {
		out.Wait, out.Never = b.wait(wanted > amount, excess-out.Held <= 0, frees, now)
	}
	return out
}

// wait returns how long until a refused call fits, or true if it never will.
func (b binder) wait(tooLarge, soon bool, frees, now int64) (time.Duration, bool) {
	switch {
	case tooLarge:
		return 0, true
	case span(frees-now) < Endless:
		return span(frees - now), false
	case soon: // only other calls can free capacity
		return b.lease, false
	default:
		return 0, true
	}
}
