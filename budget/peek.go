package budget

import (
	"context"
	"math"
	"time"
)

// Peek tells where the limits that concern the call stand, and charges nothing.
func (s *Store) Peek(ctx context.Context, limits []Limit, c Call) ([]Status, error) {
	_, out, err := s.peek(ctx, limits, c, nil)
	return out, err
}

// Room tells where the limits that concern the call stand, and charges nothing. The error
// that Hold of so much would return now comes as the second result; nil: it would fit. Of
// limits and caps that refuse, it names the one with the longest wait.
func (s *Store) Room(ctx context.Context, limits []Limit, caps []Cap, c Call, want Amounts) ([]Status, *ExceededError, error) {
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

func (s *Store) room(ctx context.Context, limits []Limit, c Call, want Amounts) ([]Status, *ExceededError, error) {
	bound, statuses, err := s.peek(ctx, limits, c, &want)
	if err != nil {
		return nil, nil, err
	}
	return statuses, exceeds(bound, statuses, want), nil
}

// exceeds is what a call that wants so much is told of limits in these states; nil: it fits.
func exceeds(limits []Limit, statuses []Status, want Amounts) *ExceededError {
	for _, st := range statuses {
		if st.Refused && st.Mode != Shadow {
			return exceeded(limits, statuses, want)
		}
	}
	return nil
}

// outlasts reports whether e is over later than other.
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

// peek reads the states of limits for a call that wants so much of them, or nothing. It
// returns the limits that concern the call, too.
func (s *Store) peek(ctx context.Context, limits []Limit, c Call, want *Amounts) ([]Limit, []Status, error) {
	h, err := s.unheld(limits, c)
	if err != nil || len(h.states) == 0 {
		return nil, nil, err
	}
	if err := s.readLoss(ctx, c.Org); err != nil {
		return nil, nil, err
	}
	a, err := s.ask(ctx, s.scripts.peek, func(now time.Time) ([]string, []any, error) {
		args := []any{s.given()}
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
		return nil, nil, err
	}
	asked := Amounts{}
	if want != nil {
		asked = *want
	}
	out, err := s.statuses(h, a, asked)
	for i := range out {
		out[i].closed(s.closedUntil(c.Org, &h.limits[i], a.at()), a.at())
	}
	return h.limits, out, err
}

// overBy is what a call wants of a limit less the limit's amount.
func (s *Store) overBy(h *Hold, i int, want *Amounts, now time.Time) any {
	if want == nil {
		return wantsNothing
	}
	l := &h.limits[i]
	n := l.Metric.amountOf(*want)
	if !s.closedUntil(h.Call.Org, l, now).IsZero() {
		return n + 1 // its amount is -1: nothing is within it
	}
	amount := l.Shape.Amount
	if len(l.Raises) > 0 {
		amount, _ = l.amountAt(now)
	}
	return n - amount
}
