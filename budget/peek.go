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
	_, out, err := s.peek(ctx, limits, c, nil)
	return out, err
}

// CapRoom is Room for the limits of one spend cap.
func (s *Store) CapRoom(ctx context.Context, spend Cap, c ledger.Call, want Amounts) ([]Status, error) {
	statuses, _, err := s.room(ctx, spend.Limits, spend.of(c), want)
	return statuses, err
}

// Frees reports when the given percentage of each limit is free, without charging anything: a
// Status that is Refused has the time in its Wait; for others that much is free now.
func (s *Store) Frees(ctx context.Context, limits []Limit, c ledger.Call, percent int64) ([]Status, error) {
	_, out, err := s.peek(ctx, limits, c, func(_ *Limit, amount int64) int64 {
		return amount/100*percent + amount%100*percent/100
	})
	return out, err
}

// CapFrees is Frees for the limits of a spend cap.
func (s *Store) CapFrees(ctx context.Context, spend Cap, percent int64) ([]Status, error) {
	return s.Frees(ctx, spend.Limits, spend.of(ledger.Call{}), percent)
}

// Room returns the statuses of the limits that apply to the call, and charges nothing. The second
// result is the error that Hold would return now for want, nil if it would fit. Of several limits
// and caps that refuse, it names the one with the longest wait.
func (s *Store) Room(
	ctx context.Context, limits []Limit, caps []Cap, c ledger.Call, want Amounts,
) ([]Status, *ExceededError, error) {
	statuses, refused, err := s.room(ctx, limits, c, want)
	if err != nil {
		return nil, nil, err
	}
	for _, spend := range caps {
		_, e, err := s.room(ctx, spend.Limits, spend.of(c), want)
		if err != nil {
			return nil, nil, err
		}
		if e != nil && (refused == nil || e.outlasts(refused)) {
			e.Cap, e.Statuses = &spend, statuses
			refused = e
		}
	}
	return statuses, refused, nil
}

func (s *Store) room(
	ctx context.Context, limits []Limit, c ledger.Call, want Amounts,
) ([]Status, *ExceededError, error) {
	bound, statuses, err := s.peek(ctx, limits, c, func(l *Limit, _ int64) int64 { return l.Metric.amountOf(want) })
	if err != nil {
		return nil, nil, err
	}
	return statuses, exceeds(bound, statuses, want), nil
}

// exceeds returns the refusal of a call that requests want under limits in these states; nil if it
// fits.
func exceeds(limits []Limit, statuses []Status, want Amounts) *ExceededError {
	for _, st := range statuses {
		if st.Refused && st.Mode != Shadow {
			return exceeded(limits, statuses, want)
		}
	}
	return nil
}

// outlasts reports whether e lasts longer than other.
func (e *ExceededError) outlasts(other *ExceededError) bool {
	switch {
	case e.Soon != other.Soon:
		return other.Soon
	case e.Binding.Never != other.Binding.Never:
		return e.Binding.Never
	}
	return e.Binding.Wait > other.Binding.Wait
}

// wantsNothing is within every limit.
var wantsNothing any = int64(math.MinInt64 >> 10)

// wants returns how much of a limit with the given amount a call requests; nil means nothing.
type wants func(l *Limit, amount int64) int64

// peek reads the states of limits for a call that requests want of them. It also returns the limits
// that apply to the call. What a limit counts in several parts of the org is added up.
func (s *Store) peek(ctx context.Context, limits []Limit, c ledger.Call, want wants) ([]Limit, []Status, error) {
	h, err := s.binder.unheld(limits, c)
	if err != nil || len(h.states) == 0 {
		return nil, nil, err
	}
	out, err := s.peekPart(ctx, h, want)
	spread := s.places.of(c.Org)
	if err != nil || !slices.ContainsFunc(h.limits, func(l Limit) bool { return !spread.whole(&l, c) }) {
		return h.limits, out, err
	}
	own := h.Call.Part
	for _, number := range spread.numbers() {
		if number == own {
			continue
		}
		h.Call.Part = number
		part, err := s.peekPart(ctx, h, want)
		if err != nil {
			return nil, nil, err
		}
		for i := range out {
			if !spread.whole(&h.limits[i], c) {
				out[i].add(part[i])
			}
		}
	}
	return h.limits, out, nil
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
	a, err := s.runner.ask(ctx, s.runner.scripts.peek, func(now time.Time) ([]string, []any, error) {
		args := []any{s.clock.given()}
		for i, st := range h.states {
			p1, p2, err := st.params(now)
			if err != nil {
				return nil, nil, err
			}
			args = append(args, st.Kind, p1, p2, s.overBy(h, i, want, now))
		}
		return h.keys(), args, nil
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
