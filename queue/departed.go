package queue

import (
	"context"
	"time"
)

// Places are the places in the queue of callers whose connection ended: they are kept for
// those who come back.
type Places struct {
	wakeups *wakeups
	reader  *reader
	endings *endings
	scripts *scripts
	own     *ownedPools
}

// Leave gives a job up on behalf of a connected caller who is gone: a waiting
// job is cancelled, the run of a stream is told (ErrCallerGone), any other run
// goes on to its end. It returns the job as it is afterwards.
func (pl *Places) Leave(ctx context.Context, org, id string) (*Job, error) {
	return pl.endFor(ctx, org, id, "caller_gone")
}

// Expire ends a job only if it still waits, with state expired: its caller
// waits no longer. A job that runs is left alone. It returns the job as it is
// afterwards.
func (q *Queue) Expire(ctx context.Context, org, id string) (*Job, error) {
	return q.places.endFor(ctx, org, id, "expired")
}

// Reserve keeps the place of a waiting job for `d` although its caller leaves: nothing
// starts it before Return. A job that runs goes on, and one of another class needs no
// caller. It returns the state the job has; a stream that runs is not reserved.
func (pl *Places) Reserve(ctx context.Context, org, id string, d time.Duration) (State, error) {
	return pl.stay(ctx, org, id, stay{"leave", d, d})
}

// Return lets a job wait in its old turn because its caller is back: it counts as
// having a caller for `present`, and may wait for another `wait`, within its pool's
// MaxAge. Neither is ever shortened. It returns the job as it is afterwards.
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

// stay is how long a job's caller counts as present, and may wait, from when it leaves or is back.
type stay struct {
	what          string // leave or back
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

// Lifetime is the longest a job of a pool and its result can be read.
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
	if err := pl.endings.cancel(ctx, p, id, why, org); err != nil {
		return nil, err
	}
	return pl.reader.job(ctx, org, id)
}
