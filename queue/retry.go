package queue

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/wire"
)

const (
	// retryRest is the pause after the first attempt that the provider failed; each one
	// after it is twice as long. A flow whose provider cannot be reached rests reachMost at the
	// longest, because one job of it finds out for all.
	retryRest = 2 * time.Second
	reachMost = 30 * time.Second
)

// pause is how long a job waits for its next attempt after one that the provider failed.
func pause(j *Job) time.Duration { return retryRest << min(j.Retries, 30) }

// repeats reports whether a job is tried again when the provider fails the attempt: nobody
// waits for it, its org does not forbid it, and its next attempt is not too late.
func (r *runner) repeats(c *Claim, call *guard.Call) bool {
	j := c.Job
	if j.Class == Interactive || call.Caller.Org.KeepStarted {
		return false
	}
	until := j.Created.Add(r.q.now().opts.RetryFor)
	if !j.Deadline.IsZero() && j.Deadline.Before(until) {
		until = j.Deadline
	}
	return time.Now().Add(pause(j)).Before(until)
}

// unreached is the verdict when the provider could not be reached. The flow rests: what one of
// its jobs has met all would meet. A job that is not to be tried again fails.
func (r *runner) unreached(c *Claim, call *guard.Call, why *wire.Error) Verdict {
	rest := Verdict{Kind: Requeue, Wait: reachRest, Unused: true, Refused: true}
	switch {
	case c.Job.Class == Interactive, r.q.now().opts.RetryFor == 0:
		return rest
	case r.repeats(c, call) || call.Caller.Org.KeepStarted:
		rest.Wait, rest.Failed = min(pause(c.Job), reachMost), true
		return rest
	}
	return failed(why)
}

func (r *runner) block(ctx context.Context, pool string, d time.Duration) {
	if d <= 0 {
		d = busyRest
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := r.q.Block(ctx, pool, d); err != nil {
		r.log.Warn("pool not blocked after the provider refused", "pool", pool, "error", err)
	}
}
