package guard

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// Settle replaces a hold by what the work cost, as calls do: what exceeds the hold is charged too. A
// repetition returns the first charge. An expired hold is corrected. If the store is unavailable,
// the charge is in the journal when this returns (Kept), provided that this process took the hold.
//
// Errors are *wire.Error, ErrNoHold, ErrHoldEnded, budget.ErrTooOld, or wrap budget.ErrUnavailable:
// then repeat it.
func (hs *Holds) Settle(ctx context.Context, c Caller, id string, actual Spend) (HeldState, error) {
	return hs.end(ctx, c, id, func(call *Call) error { return call.costs(actual) })
}

// Void returns all of a hold. Repeating it is harmless; a settled hold stays settled, and the error
// is ErrHoldEnded. It works like Settle otherwise.
func (hs *Holds) Void(ctx context.Context, c Caller, id string) (HeldState, error) {
	return hs.end(ctx, c, id, nil)
}

// end ends a hold. result sets what it cost; nil voids it.
func (hs *Holds) end(ctx context.Context, c Caller, id string, result func(*Call) error) (HeldState, error) {
	who, made, err := callOf(c, id)
	if err != nil {
		return HeldState{}, err
	}
	ctx = context.WithoutCancel(ctx)
	h, out, err := hs.find(ctx, c.Org, who, nil)
	lost := errors.Is(err, ErrNoHold) || errors.Is(err, budget.ErrUnavailable)
	known := hs.recall(id)
	if lost && known.hold != nil { // the store is unavailable, or has lost its data
		h, err = known.hold, nil
	}
	wanted := budget.EndedSettled
	if result == nil {
		wanted = budget.EndedVoided
	}
	switch {
	case err != nil:
		return HeldState{}, err
	case out.How == "" && known.kept != nil && known.kept.How == wanted:
		return *known.kept, nil
	case out.How == "" && known.kept != nil:
		return *known.kept, ErrHoldEnded
	case out.How == wanted:
		return stateOf(id, made, h, out), nil
	case out.How != "" && out.How != budget.EndedExpired:
		return stateOf(id, made, h, out), ErrHoldEnded
	}
	c, err = c.holder(h.Call)
	if err != nil {
		return HeldState{}, err
	}
	call := hs.callFor(c, h, made)
	if result != nil {
		if err := result(call); err != nil {
			return HeldState{}, err
		}
	}
	call.traceSettle(ctx)
	if err := hs.guard.settler.endAll(ctx, []*Call{call}); err != nil {
		return HeldState{}, errors.Join(budget.ErrUnavailable, err)
	}
	return hs.ended(ctx, call, id, made)
}

func (hs *Holds) callFor(c Caller, h *budget.Hold, made time.Time) *Call {
	p := hs.planOf(c, h.Call, made)
	p.Max = h.Max
	call := newCall(hs.guard, p, h.Call.ID, h.Call.Attempt)
	call.holds(h, 0)
	return call
}

// costs sets the result of settled work. Its price is that of the time when it was held.
func (c *Call) costs(actual Spend) error {
	r := &c.Result
	r.Outcome, r.Usage = Completed, actual.Usage
	r.Usage.Requests = 1
	if actual.Cost != nil {
		r.Cost = *actual.Cost
		return nil
	}
	if err := c.Plan.priced(); err != nil {
		return err
	}
	var err error
	r.Split, err = c.Plan.Price.Split(r.Usage, c.Plan.terms)
	r.Cost = r.Split.Total()
	if err == nil && r.Cost > budget.MaxAmount {
		err = pricing.ErrOverflow
	}
	if err != nil {
		return wire.BadRequest("", "request_not_priced", "This usage cannot be priced: %v", err)
	}
	return nil
}

// ended returns the state of a hold after its end was written or kept.
func (hs *Holds) ended(ctx context.Context, call *Call, id string, made time.Time) (HeldState, error) {
	done, r := call.settled, &call.Result
	st := HeldState{ID: id, Model: call.Plan.Request.Model, Made: made, How: budget.EndedSettled}
	if r.void() {
		st.How = budget.EndedVoided
	}
	switch {
	case done != nil && errors.Is(done.Err, budget.ErrTooOld):
		return st, budget.ErrTooOld
	case done == nil || done.Err != nil && done.Receipt.At.IsZero():
		st.Kept, st.Charged = true, r.Cost
		st.Overrun = max(0, r.Cost-call.Hold.Max.Cost)
		hs.keep(id, st)
		return st, nil
	case done.Receipt.Replayed && r.void(): // it was settled in the meantime
		return hs.now(ctx, call, id, made)
	}
	hs.forget(id)
	hs.release(ctx, call.Hold.Call, endedHoldBytes)
	st.Charged, st.Overrun = done.Receipt.Charged, done.Receipt.Overrun
	return st, nil
}

// now returns how a hold ended that was to be voided.
func (hs *Holds) now(ctx context.Context, call *Call, id string, made time.Time) (HeldState, error) {
	_, out, err := hs.find(ctx, call.Plan.Caller.Org, call.Hold.Call, nil)
	if err != nil {
		return HeldState{}, err
	}
	st := stateOf(id, made, call.Hold, out)
	if out.How != budget.EndedVoided {
		return st, ErrHoldEnded
	}
	return st, nil
}

// remember keeps a hold that this process took, so that it can be ended while the store is unavailable.
func (hs *Holds) remember(id string, h *budget.Hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.fits(id) {
		hs.known[id] = knownHold{hold: h, until: h.Ends}
	}
}

// fits reports whether one more hold can be remembered. It forgets those that have ended. The caller
// has the lock.
func (hs *Holds) fits(id string) bool {
	if _, has := hs.known[id]; has {
		return true
	}
	if len(hs.known) >= knownMost {
		at := time.Now()
		maps.DeleteFunc(hs.known, func(_ string, k knownHold) bool { return k.until.Before(at) })
	}
	return len(hs.known) < knownMost
}

// knownMost bounds the holds that a process remembers, at about 1 KB each.
const knownMost = 20_000

func (hs *Holds) recall(id string) knownHold {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.known[id]
}

// keep remembers that a hold's end is in the journal.
func (hs *Holds) keep(id string, st HeldState) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if !hs.fits(id) {
		return // the journal has it, and a repetition is settled once
	}
	k := hs.known[id]
	k.kept = &st
	hs.known[id] = k
}

func (hs *Holds) forget(id string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.known, id)
}
