package budget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Offline admits calls while the store is unreachable.
type Offline struct {
	binder   binder
	clock    *clock
	shares   *localShares
	deferred *Deferred
	metrics  *metrics
}

// AdmitShare admits a call without the store, if it fits into percent of every limit that applies
// to it. That share is what this process admits on its own in any window, calendar period, or time
// that a bucket takes to fill; what other processes admit and what the store counts is not known.
// If the call does not fit, the error is *ExceededError without Statuses; its Binding describes the
// share.
//
// When AdmitShare returns, the admission is on disk in the journal. Once the store is back, the
// call is charged to its limits: with the hold's actual end, or in full if this process dies.
// SettleAll, Settle and Void accept the hold like any other. Spend caps are shared out and charged
// like the limits.
func (o *Offline) AdmitShare(ctx context.Context, t Terms, percent int) (*Hold, error) {
	h, err := o.unasked(t)
	if err != nil {
		return nil, err
	}
	if err := o.shares.take(h, percent); err != nil {
		return nil, err
	}
	for i, part := range h.caps {
		if err := o.shares.take(part, percent); err != nil {
			o.shares.give(Settle{Hold: h})
			o.metrics.capRefused(t.Caps[i], err)
			return nil, h.cappedBy(t.Caps[i], err, t.Max)
		}
	}
	return h, o.admit(ctx, h)
}

// unasked prepares a hold without contacting the store.
func (o *Offline) unasked(t Terms) (*Hold, error) {
	t.Expected = t.Max
	h, err := o.binder.prepare(&t)
	if err != nil {
		return nil, err
	}
	for _, spend := range t.Caps {
		part, err := o.binder.prepare(t.under(spend))
		if err != nil {
			return nil, err
		}
		h.caps = append(h.caps, part)
	}
	return h, nil
}

// AdmitAll is AdmitShare without shares: every call is admitted, and charged
// when the store is back.
func (o *Offline) AdmitAll(ctx context.Context, t Terms) (*Hold, error) {
	h, err := o.unasked(t)
	if err != nil {
		return nil, err
	}
	return h, o.admit(ctx, h)
}

// admit writes an admission to the journal.
func (o *Offline) admit(ctx context.Context, h *Hold) error {
	h.without, h.At = true, o.clock.now()
	for _, part := range h.caps {
		part.At = h.At
	}
	k := walRecordOf(Settle{Hold: h})
	k.Open = true
	text, err := json.Marshal(k)
	if err == nil {
		err = o.deferred.Admit(ctx, k.id(), text)
	}
	if err != nil {
		o.shares.give(Settle{Hold: h})
		return fmt.Errorf("%w: admission not kept: %w", ErrUnavailable, err)
	}
	return nil
}

// answered records that the store accepted or listed the end of a call that was admitted without
// it; or, if the attempt at began failed, that the store may have it.
func (o *Offline) answered(e Settle, began time.Time, err error) {
	if e.Hold.without && e.Hold.asked.IsZero() && err != nil {
		e.Hold.asked = began
	}
	if e.Hold.without && (err == nil || errors.Is(err, ErrTooOld)) {
		o.shares.give(e)
		o.deferred.Ended(walRecordOf(e).id())
	}
}
