package queue

import "context"

// Leave gives a job up on behalf of a connected caller who is gone: a waiting
// job is cancelled, the run of a stream is told (ErrCallerGone), any other run
// goes on to its end. It returns the job as it is afterwards.
func (q *Queue) Leave(ctx context.Context, org, id string) (*Job, error) {
	p := q.codes[idCode(id)]
	if p == nil || org == "" {
		return nil, ErrNotFound
	}
	if err := q.cancel(ctx, p, id, "caller_gone", org); err != nil {
		return nil, err
	}
	return q.Job(ctx, org, id)
}
