package queue

import (
	"context"
	"time"
)

// Places manages the reserved places in the queue of callers whose connection ended and who
// may come back.
type Places struct {
	wakeups *wakeups
	reader  *reader
	endings *endings
	scripts *scripts
	own     *ownedPools
}

// Leave gives up a job on behalf of a connected caller who is gone: a waiting job is
// cancelled, the run of a stream is notified (ErrCallerGone), and any other run continues
// to its end. It returns the job as it is afterwards.
func (pl *Places) Leave(ctx context.Context, org, id string) (*Job, error) {
	return pl.endFor(ctx, org, id, "caller_gone")
}

// Expire ends a job in state Expired if it is still waiting, because its caller no longer
// waits. It leaves a running job alone. It returns the job as it is afterwards.
func (q *Queue) Expire(ctx context.Context, org, id string) (*Job, error) {
	return q.places.endFor(ctx, org, id, "expired")
}

// Reserve keeps the place of a waiting job for `d` after its caller has left; the job does
// not start before Return. A running job continues, and a job of another class needs no
// caller. Reserve returns the job's state. A running stream is not reserved.
func (pl *Places) Reserve(ctx context.Context, org, id string, d time.Duration) (State, error) {
	return pl.stay(ctx, org, id, stay{"leave", d, d})
}

// Return resumes a job in its old place because its caller is back: the caller counts as
// present for `present`, and the job may wait for another `wait`, within its pool's MaxAge.
// Neither deadline is ever shortened. Return returns the job as it is afterwards.
func (pl *Places) Return(ctx context.Context, org, id string, present, wait time.Duration) (*Job, error) {
	state, err := pl.stay(ctx, org, id, stay{"back", present, wait})
	if err != nil {
		return nil, err
	}
	if p := pl.own.poolOf(ctx, org, id); p != nil && state == Queued {
		p.stir()
		pl.wakeups.call(ctx, p)
	}
	return pl.reader.job(ctx, org, id)
}

// stay holds how long a job's caller counts as present and may wait, from when it leaves or
// comes back.
type stay struct {
	what          string // "leave" or "back"
	present, wait time.Duration
}

func (pl *Places) stay(ctx context.Context, org, id string, s stay) (State, error) {
	p := pl.own.poolOf(ctx, org, id)
	if p == nil || org == "" {
		return "", ErrNotFound
	}
	reply, err := pl.scripts.eval(ctx, "stay", stayScript, p.with(jobKey(p.ID, id)), id, org, s.what,
		s.present.Microseconds(), s.wait.Microseconds(), p.MaxAge.Microseconds())
	if err == nil && reply == "missing" {
		err = ErrNotFound
	}
	return State(reply), err
}

// Lifetime returns the longest time for which a job of a pool and its result can be read.
func (q *Queue) Lifetime(pool string) time.Duration {
	p := q.settings.pools()[pool]
	if p == nil {
		return 0
	}
	return p.MaxAge + p.ResultTTL
}

func (pl *Places) endFor(ctx context.Context, org, id, why string) (*Job, error) {
	p := pl.own.poolOf(ctx, org, id)
	if p == nil || org == "" {
		return nil, ErrNotFound
	}
	if _, err := pl.endings.cancel(ctx, p, id, why, org); err != nil {
		return nil, err
	}
	return pl.reader.job(ctx, org, id)
}
