package queue

import (
	"context"
	"fmt"
	"strings"
)

// responsePrefix starts the ids of responses.
const responsePrefix = "resp_"

// ResponseID returns the id under which callers know the response of a job.
func ResponseID(job string) string { return responsePrefix + strings.TrimPrefix(job, jobPrefix) }

// ResponseJob returns the id of the job that produces a response; "" if the id does not
// have the form that ResponseID returns.
func ResponseJob(id string) string {
	rest, ok := strings.CutPrefix(id, responsePrefix)
	if job := jobPrefix + rest; ok && idCode(job) != "" {
		return job
	}
	return ""
}

// Erase immediately deletes an ended job of the org with everything recorded of it. A job
// that has not ended stays.
func (q *Queue) Erase(ctx context.Context, org, id string) error {
	j, err := q.reader.job(ctx, org, id)
	if err != nil || !j.State.Terminal() {
		return err
	}
	p := q.settings.pools()[j.Pool]
	pipe := q.rdb.Pipeline()
	keys, blobs := ContentKeys(id, j.Attempt)
	pipe.Unlink(ctx, jobKey(p.ID, id))
	pipe.Unlink(ctx, keys...)
	pipe.ZRem(ctx, p.deadKey(), id)
	pipe.ZRem(ctx, orgIndex(j.Org), id)
	pipe.ZRem(ctx, userIndex(j.Org, j.User), id)
	if err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("queue: erase: %w", err)
	}
	q.contents.removeBlobs(ctx, org, blobs...)
	return q.memory.Release(ctx, id)
}
