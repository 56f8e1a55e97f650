package queue

import (
	"context"
	"time"
)

// Leave gives a job up on behalf of a connected caller who is gone: a waiting
// job is cancelled, the run of a stream is told (ErrCallerGone), any other run
// goes on to its end. It returns the job as it is afterwards.
func (q *Queue) Leave(ctx context.Context, org, id string) (*Job, error) {
	return q.endFor(ctx, org, id, "caller_gone")
}

// Expire ends a job only if it still waits, with state expired: its caller
// waits no longer. A job that runs is left alone. It returns the job as it is
// afterwards.
func (q *Queue) Expire(ctx context.Context, org, id string) (*Job, error) {
	return q.endFor(ctx, org, id, "expired")
}

// Reserve keeps the place of a waiting job for `d` although its caller leaves: nothing
// starts it before Return. A job that runs goes on, and one of another class needs no
// caller. It returns the state the job has; a stream that runs is not reserved.
func (q *Queue) Reserve(ctx context.Context, org, id string, d time.Duration) (State, error) {
	return q.stay(ctx, org, id, "leave", d, d)
}

// Return lets a job wait in its old turn because its caller is back: it counts as
// having a caller for `present`, and may wait for another `wait`, within its pool's
// MaxAge. Neither is ever shortened. It returns the job as it is afterwards.
func (q *Queue) Return(ctx context.Context, org, id string, present, wait time.Duration) (*Job, error) {
	state, err := q.stay(ctx, org, id, "back", present, wait)
	if err != nil {
		return nil, err
	}
	if p := q.poolOf(ctx, org, id); p != nil && state == Queued {
		p.stir()
		q.call(ctx, p)
	}
	return q.Job(ctx, org, id)
}

func (q *Queue) stay(ctx context.Context, org, id, what string, present, wait time.Duration) (State, error) {
	p := q.poolOf(ctx, org, id)
	if p == nil || org == "" {
		return "", ErrNotFound
	}
	reply, err := q.eval(ctx, "stay", stayScript, p.with(jobKey(p.ID, id)), id, org, what,
		present.Microseconds(), wait.Microseconds(), p.MaxAge.Microseconds())
	if err == nil && reply == "missing" {
		err = ErrNotFound
	}
	return State(reply), err
}

// Lifetime is the longest a job of a pool and its result can be read.
func (q *Queue) Lifetime(pool string) time.Duration {
	p := q.pools()[pool]
	if p == nil {
		return 0
	}
	return p.MaxAge + p.ResultTTL
}

func (q *Queue) endFor(ctx context.Context, org, id, why string) (*Job, error) {
	p := q.poolOf(ctx, org, id)
	if p == nil || org == "" {
		return nil, ErrNotFound
	}
	if err := q.cancel(ctx, p, id, why, org); err != nil {
		return nil, err
	}
	return q.Job(ctx, org, id)
}
