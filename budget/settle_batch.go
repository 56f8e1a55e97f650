package budget

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Settle is how one hold ends: by its settlement, or given back without one.
type Settle struct {
	Hold       *Hold
	Settlement *Settlement // nil: void
}

// Flight is scripts that are sent together: Process adds one and returns immediately,
// Exec waits for all. A redis.Pipeliner is one. With an error after ctx has ended
// the commands must not be read.
type Flight interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Exec(ctx context.Context) ([]redis.Cmder, error)
}

// Settled is what became of one Ending.
type Settled struct {
	Receipt Receipt // after a void only Replayed is set
	Err     error   // as of Settle and Void; with a Receipt only a cap failed
}

// SettleAll settles and voids many holds, each as Settle and Void do and each for
// itself, in one flight to Redis, and in a second one what spend caps hold for
// them, if anything. The result has one element per ending, in their order. It is
// safe for concurrent use and idempotent.
func (s *Store) SettleAll(ctx context.Context, endings []Settle) []Settled {
	began := s.now()
	out := s.endAll(ctx, endings)
	for i, e := range endings {
		s.answered(e, began, out[i].Err)
	}
	return out
}

// endAll is End for endings that may be in the tail already.
func (s *Store) endAll(ctx context.Context, endings []Settle) []Settled {
	return s.endCaps(ctx, endings, s.endFlight(ctx, endings))
}

// endFlight ends each hold without looking at its caps.
func (s *Store) endFlight(ctx context.Context, endings []Settle) []Settled {
	out := make([]Settled, len(endings))
	sent := make([]*request, len(endings))
	pipe := s.opts.Flights()
	began, now := time.Now(), s.now()
	for i, e := range endings {
		sent[i], out[i].Err = s.queueEnding(ctx, pipe, e, now)
	}
	_, err := pipe.Exec(ctx) // each command has its own error, too
	late := err != nil && ctx.Err() != nil
	took := time.Since(began).Seconds()
	for i, e := range endings {
		if sent[i] == nil {
			continue
		}
		if late { // the commands may still be under way
			out[i].Err = storeError(e.script(s).name, ctx.Err())
			continue
		}
		s.metrics.took(e.script(s).name, took)
		out[i] = s.ended(ctx, e, sent[i])
	}
	return out
}

func (e Settle) script(s *Store) script {
	if e.Settlement == nil {
		return s.scripts.void
	}
	return s.scripts.settle
}

func (e Settle) ending() settleArgs {
	if e.Settlement == nil {
		return voiding(e.Hold)
	}
	return settling(e.Hold, e.Settlement)
}

// queueEnding puts one script call into the flight.
func (s *Store) queueEnding(ctx context.Context, pipe Flight, e Settle, now time.Time) (*request, error) {
	s.untrack(e.Hold.Call.Org, e.Hold.ID)
	if e.Settlement != nil {
		if err := e.Settlement.Actual.validate("charge"); err != nil {
			return nil, err
		}
	}
	r, err := s.endingRequest(ctx, e.script(s), e.ending(), now)
	if err != nil {
		return nil, err
	}
	return r, pipe.Process(ctx, r) // only queues
}

// ended reads one answer. What the script did not do, because it is not loaded
// or wants other keys or another time, is done by itself.
func (s *Store) ended(ctx context.Context, e Settle, r *request) Settled {
	reply, err := r.answer()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.endAlone(ctx, e)
	}
	if err != nil {
		return Settled{Err: storeError(e.script(s).name, err)}
	}
	a, err := decode(reply)
	if err != nil {
		return Settled{Err: err}
	}
	s.seen(a.at())
	if a.verdict == "skew" || a.verdict == "keys" {
		return s.endAlone(ctx, e)
	}
	if e.Settlement == nil {
		return Settled{Receipt: Receipt{Replayed: a.verdict == "replayed"}}
	}
	receipt, err := s.receipt(a, e.Hold, e.Settlement.Estimated)
	return Settled{receipt, err}
}

func (s *Store) endAlone(ctx context.Context, e Settle) Settled {
	if e.Settlement == nil {
		a, err := s.end(ctx, s.scripts.void, e.ending())
		return Settled{Receipt{Replayed: a.verdict == "replayed"}, err}
	}
	r, err := s.settle(ctx, e)
	return Settled{r, err}
}
