package queue

import "context"

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

func (q *Queue) endFor(ctx context.Context, org, id, why string) (*Job, error) {
	p := q.codes[idCode(id)]
	if p == nil || org == "" {
		return nil, ErrNotFound
	}
	if err := q.cancel(ctx, p, id, why, org); err != nil {
		return nil, err
	}
	return q.Job(ctx, org, id)
}
