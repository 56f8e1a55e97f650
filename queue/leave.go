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

// Stay lets a job that has not ended go on although nobody is connected, or
// because its caller is back: an interactive one counts as having a caller for
// `present`, and any may wait for another `wait`, within its pool's MaxAge.
// Neither is ever shortened. It returns the job as it is afterwards.
func (q *Queue) Stay(ctx context.Context, org, id string, present, wait time.Duration) (*Job, error) {
	p := q.poolOf(ctx, org, id)
	if p == nil || org == "" {
		return nil, ErrNotFound
	}
	if _, err := q.eval(ctx, "stay", stayScript, p.with(jobKey(p.ID, id)), id, org,
		present.Microseconds(), wait.Microseconds(), p.MaxAge.Microseconds()); err != nil {
		return nil, err
	}
	return q.Job(ctx, org, id)
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
