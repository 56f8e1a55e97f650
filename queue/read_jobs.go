package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/redisconn"
)

// Jobs returns jobs of an org in one round trip, in the order of their ids. A job that does
// not exist is nil. The error is ErrNewer if this version cannot read one of them.
func (q *Queue) Jobs(ctx context.Context, org string, ids []string) ([]*Job, error) {
	pipe := q.rdb.Pipeline()
	reads := make([]func() (*Job, error), len(ids))
	for i, id := range ids {
		if p := q.own.poolOf(ctx, org, id); p != nil {
			reads[i] = p.read(ctx, pipe, id)
		}
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("queue: read jobs: %w", err)
	}
	jobs := make([]*Job, len(ids))
	for i, read := range reads {
		if read == nil {
			continue
		}
		j, err := read()
		if err != nil {
			return nil, err
		}
		if j != nil && j.Org == org {
			jobs[i] = j
		}
	}
	return jobs, addCosts(ctx, q.rdb, jobs...)
}

// addCosts adds to jobs, some of which may be nil, what the ledger has charged for them.
func addCosts(ctx context.Context, rdb redisconn.DB, jobs ...*Job) error {
	var list []budget.JobCost
	for _, j := range jobs {
		if j != nil {
			list = append(list, budget.JobCost{Org: j.Org, ID: j.ID, To: &j.Charged})
		}
	}
	if err := budget.AddJobCosts(ctx, rdb, list); err != nil {
		return fmt.Errorf("queue: read jobs: %w", err)
	}
	return nil
}

// goneAfter is how long the record of a forgotten job stays, so that a late Put of its id
// does not run it again.
const goneAfter = time.Minute

// Forget deletes what ended jobs keep in Redis, because their results are stored elsewhere
// now. What it fails to delete expires.
func (q *Queue) Forget(ctx context.Context, jobs []*Job) error {
	pipe, ids := q.rdb.Pipeline(), make([]string, 0, len(jobs))
	for _, j := range jobs {
		if !j.State.Terminal() {
			return errors.New("queue: forget a job that has not ended")
		}
		keys, _ := ContentKeys(j.ID, j.Attempt)
		pipe.Unlink(ctx, keys...)
		pipe.PExpire(ctx, jobKey(j.Pool, j.ID), goneAfter)
		ids = append(ids, j.ID)
	}
	if err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("queue: forget: %w", err)
	}
	return q.memory.Release(ctx, ids...)
}
