package budget

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Ending is how one hold ends: by its settlement, or given back without one.
type Ending struct {
	Hold       *Hold
	Settlement *Settlement // nil: void
}

// Flight is scripts that are sent together: EvalSha adds one and returns at once,
// Exec waits for all. A redis.Pipeliner is one. With an error after ctx has ended
// the commands are not looked at.
type Flight interface {
	redis.Scripter
	Exec(ctx context.Context) ([]redis.Cmder, error)
}

// Ended is what became of one Ending.
type Ended struct {
	Receipt Receipt // after a void only Replayed is set
	Err     error   // as of Settle and Void; with a Receipt only a cap failed
}

// End settles and voids many holds, each as Settle and Void do and each for
// itself, in one flight to Redis, and in a second one what spend caps hold for
// them, if anything. The result has one element per ending, in their order. It is
// safe for concurrent use and idempotent.
func (s *Store) End(ctx context.Context, endings []Ending) []Ended {
	began := s.now()
	out := s.endAll(ctx, endings)
	for i, e := range endings {
		s.answered(e, began, out[i].Err)
	}
	return out
}

// endAll is End for endings that may be in the tail already.
func (s *Store) endAll(ctx context.Context, endings []Ending) []Ended {
	return s.endCaps(ctx, endings, s.endFlight(ctx, endings))
}

// endFlight ends each hold without looking at its caps.
func (s *Store) endFlight(ctx context.Context, endings []Ending) []Ended {
	out := make([]Ended, len(endings))
	sent := make([]*redis.Cmd, len(endings))
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

func (e Ending) script(s *Store) script {
	if e.Settlement == nil {
		return s.scripts.void
	}
	return s.scripts.settle.of(e.Hold.states)
}

func (e Ending) ending() ending {
	if e.Settlement == nil {
		return voiding(e.Hold)
	}
	return settling(e.Hold, e.Settlement)
}

// queueEnding puts one script call into the flight.
func (s *Store) queueEnding(ctx context.Context, pipe Flight, e Ending, now time.Time) (*redis.Cmd, error) {
	s.untrack(e.Hold.Call.Org, e.Hold.ID)
	if e.Settlement != nil {
		if err := e.Settlement.Actual.validate("charge"); err != nil {
			return nil, err
		}
	}
	keys, args, err := s.endingArgs(e.ending(), now)
	if err != nil {
		return nil, err
	}
	return e.script(s).EvalSha(ctx, pipe, keys, args...), nil
}

// ended reads one answer. What the script did not do, because it is not loaded
// or wants other keys or another time, is done by itself.
func (s *Store) ended(ctx context.Context, e Ending, cmd *redis.Cmd) Ended {
	reply, err := cmd.Text()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.endAlone(ctx, e)
	}
	if err != nil {
		return Ended{Err: storeError(e.script(s).name, err)}
	}
	a, err := decode(reply)
	if err != nil {
		return Ended{Err: err}
	}
	s.seen(a.at())
	if a.verdict == "skew" || a.verdict == "keys" {
		return s.endAlone(ctx, e)
	}
	if e.Settlement == nil {
		return Ended{Receipt: Receipt{Replayed: a.verdict == "replayed"}}
	}
	r, err := s.receipt(a, e.Hold, e.Settlement.Estimated)
	return Ended{r, err}
}

func (s *Store) endAlone(ctx context.Context, e Ending) Ended {
	if e.Settlement == nil {
		a, err := s.end(ctx, s.scripts.void.of, e.ending())
		return Ended{Receipt{Replayed: a.verdict == "replayed"}, err}
	}
	r, err := s.settle(ctx, e)
	return Ended{r, err}
}
