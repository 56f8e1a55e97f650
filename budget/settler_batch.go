package budget

import (
	"context"
	"errors"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// all ends holds in one batch, and then what spend caps hold for them.
func (s *settler) all(ctx context.Context, endings []Settle) []Settled {
	return s.caps(ctx, endings, s.flight(ctx, endings))
}

// flight ends each hold without its caps.
func (s *settler) flight(ctx context.Context, endings []Settle) []Settled {
	out := make([]Settled, len(endings))
	sent := make([]*request, len(endings))
	pipe := s.flights()
	began, now := time.Now(), s.clock.now()
	for i, e := range endings {
		sent[i], out[i].Err = s.queue(ctx, pipe, e, now)
	}
	err := pipe.Exec(ctx) // each command has its own error
	late := err != nil && ctx.Err() != nil
	took := time.Since(began).Seconds()
	for i, e := range endings {
		if sent[i] == nil {
			continue
		}
		if late { // the commands may still be in progress
			out[i].Err = storeError(e.script(&s.runner.scripts).name, ctx.Err())
			continue
		}
		s.metrics.took(e.script(&s.runner.scripts).name, took)
		out[i] = s.ended(ctx, e, sent[i])
	}
	return out
}

// script returns the script that ends the hold.
func (e Settle) script(all *scripts) script {
	if e.Settlement == nil {
		return all.void
	}
	return all.settle
}

func (e Settle) ending() settleArgs {
	if e.Settlement == nil {
		return voiding(e.Hold)
	}
	return settling(e.Hold, e.Settlement)
}

// queue adds one script call to the batch.
func (s *settler) queue(ctx context.Context, pipe Flight, e Settle, now time.Time) (*request, error) {
	s.leases.untrack(e.Hold)
	if e.Settlement != nil {
		if err := e.Settlement.Actual.validate("charge"); err != nil {
			return nil, err
		}
	}
	r, err := s.request(ctx, e.script(&s.runner.scripts), e.ending(), now)
	if err != nil {
		return nil, err
	}
	pipe.Add(ctx, r.Late)
	return r, nil
}

// ended decodes one answer. If the script did nothing, because it is not loaded or needs other keys
// or another time, ended repeats it on its own.
func (s *settler) ended(ctx context.Context, e Settle, r *request) Settled {
	reply, err := r.answer()
	if redisconn.NoScript(err) {
		return s.alone(ctx, e)
	}
	if err != nil {
		return Settled{Err: storeError(e.script(&s.runner.scripts).name, err)}
	}
	a, err := decode(reply)
	if err != nil {
		return Settled{Err: err}
	}
	s.clock.seen(a.at())
	if a.verdict == "skew" || a.verdict == "keys" {
		return s.alone(ctx, e)
	}
	if e.Settlement == nil {
		return Settled{Receipt: Receipt{Replayed: a.verdict == "replayed"}}
	}
	receipt, err := s.receipt(a, e.Hold, e.Settlement.Estimated)
	return Settled{receipt, err}
}

func (s *settler) alone(ctx context.Context, e Settle) Settled {
	if e.Settlement == nil {
		a, err := s.end(ctx, s.runner.scripts.void, e.ending())
		return Settled{Receipt{Replayed: a.verdict == "replayed"}, err}
	}
	r, err := s.settle(ctx, e)
	return Settled{r, err}
}

// caps ends what the caps hold for the calls whose own end the store has, in one batch; own are the
// results of those. It comes second because a cluster executes a batch in any order: a call that
// was returned under a cap but never ended in its org would be charged there and missing here. If
// the process dies in between, the holds of the caps expire.
func (s *settler) caps(ctx context.Context, endings []Settle, own []Settled) []Settled {
	var parts []Settle
	for i, e := range endings {
		for _, part := range e.Hold.caps {
			s.leases.untrack(part)
			if own[i].known() {
				parts = append(parts, Settle{part, e.Settlement})
			}
		}
	}
	if len(parts) == 0 {
		return own
	}
	done := s.flight(ctx, parts)
	for i, e := range endings {
		if !own[i].known() {
			continue
		}
		n := len(e.Hold.caps)
		if own[i].Err == nil {
			own[i].Err = s.capsEnded(e.Hold, done[:n])
		}
		done = done[n:]
	}
	return own
}

// capsEnded returns the first error that requires another attempt.
func (s *settler) capsEnded(h *Hold, done []Settled) error {
	for _, d := range done {
		if errors.Is(d.Err, ErrTooOld) { // it expired long ago, or was lost with the store
			s.log.Warn("late settlement not counted by spend cap", "call", h.Call.ID)
			continue
		}
		if d.Err != nil {
			return d.Err
		}
	}
	return nil
}

// known reports whether the store has the end, possibly on the reconciliation list.
func (d Settled) known() bool { return d.Err == nil || errors.Is(d.Err, ErrTooOld) }
