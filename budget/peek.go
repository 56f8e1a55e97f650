package budget

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Peek returns the statuses of the limits that apply to the call, and charges nothing.
func (s *Store) Peek(ctx context.Context, limits []Limit, c ledger.Call) ([]Status, error) {
	return s.peek(ctx, limits, c, nil)
}

// CapRoom is Room for the limits of one spend cap.
func (s *Store) CapRoom(ctx context.Context, spend Cap, c ledger.Call, want Amounts) ([]Status, error) {
	return s.Room(ctx, spend.Limits, spend.of(c), want)
}

// Frees reports when the given percentage of each limit is free, without charging anything: a
// Status that is Refused has the time in its Wait; for others that much is free now.
func (s *Store) Frees(ctx context.Context, limits []Limit, c ledger.Call, percent int64) ([]Status, error) {
	return s.peek(ctx, limits, c, func(_ *Limit, amount int64) int64 {
		return amount/100*percent + amount%100*percent/100
	})
}

// CapFrees is Frees for the limits of a spend cap.
func (s *Store) CapFrees(ctx context.Context, spend Cap, percent int64) ([]Status, error) {
	return s.Frees(ctx, spend.Limits, spend.of(ledger.Call{}), percent)
}

// Room returns the statuses of the limits that apply to the call, and charges nothing. A Status is Refused if a Hold
// of want would not fit now.
func (s *Store) Room(ctx context.Context, limits []Limit, c ledger.Call, want Amounts) ([]Status, error) {
	return s.peek(ctx, limits, c, func(l *Limit, _ int64) int64 { return l.Metric.amountOf(want) })
}

// wantsNothing is within every limit.
var wantsNothing any = int64(math.MinInt64 >> 10)

// wants returns how much of a limit with the given amount a call requests; nil means nothing.
type wants func(l *Limit, amount int64) int64

// peek reads the states of limits for a call that requests want of them. What a limit counts in several parts of the
// org is added up.
func (s *Store) peek(ctx context.Context, limits []Limit, c ledger.Call, want wants) ([]Status, error) {
	h, err := s.binder.unheld(limits, c)
	if err != nil || len(h.states) == 0 {
		return nil, err
	}
	out, err := s.peekPart(ctx, h, want)
	spread := s.places.of(c.Org)
	if err != nil || !slices.ContainsFunc(h.limits, func(l Limit) bool { return !spread.whole(&l, c) }) {
		return out, err
	}
	own := h.Call.Part
	for _, number := range spread.numbers() {
		if number == own {
			continue
		}
		h.Call.Part = number
		part, err := s.peekPart(ctx, h, want)
		if err != nil {
			return nil, err
		}
		for i := range out {
			if !spread.whole(&h.limits[i], c) {
				out[i].add(part[i])
			}
		}
	}
	return out, nil
}

// add adds what the same limit counts in another part.
func (st *Status) add(o Status) {
	st.Used, st.Held = st.Used+o.Used, st.Held+o.Held
	st.Remaining = max(0, st.Amount-st.Used)
	st.Reset, st.Wait = max(st.Reset, o.Reset), max(st.Wait, o.Wait)
	st.Refused, st.Never = st.Refused || o.Refused, st.Never || o.Never
	if o.ClosedUntil.After(st.ClosedUntil) {
		st.ClosedUntil = o.ClosedUntil
	}
}

// peekPart reads the states of limits in the part of their call.
func (s *Store) peekPart(ctx context.Context, h *Hold, want wants) ([]Status, error) {
	place := h.Call.Place()
	if err := s.DataLoss.Read(ctx, place); err != nil {
		return nil, err
	}
	a, err := s.runner.askEach(ctx, s.runner.scripts.peek, h, func(i int, now time.Time) []any {
		return []any{s.overBy(h, i, want, now)}
	})
	if err != nil {
		return nil, err
	}
	out, err := s.binder.statuses(h, a, func(l *Limit) int64 {
		if want == nil {
			return 0
		}
		return want(l, l.now(a.at()))
	})
	for i := range out {
		out[i].closed(closedUntil(s.DataLoss, place, &h.limits[i], a.at()), a.at())
	}
	return out, err
}

// overBy returns what a call requests of a limit minus the limit's amount.
func (s *Store) overBy(h *Hold, i int, want wants, now time.Time) any {
	if want == nil {
		return wantsNothing
	}
	l := &h.limits[i]
	amount := l.now(now)
	n := want(l, amount)
	if !closedUntil(s.DataLoss, h.Call.Place(), l, now).IsZero() {
		return n + 1 // a closed limit has amount -1, which admits nothing
	}
	return n - amount
}

// now returns the limit's amount at a time, including raises.
func (l *Limit) now(at time.Time) int64 {
	if len(l.Raises) == 0 {
		return l.Shape.Amount
	}
	amount, _ := l.amountAt(at)
	return amount
}
