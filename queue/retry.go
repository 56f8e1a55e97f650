package queue

import (
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
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

// repeats reports whether a job is tried again after so long when the provider fails the
// attempt: no caller is connected, its org does not forbid it, and that is not too late.
func (r *runner) repeats(c *Claim, org *guard.Org, wait time.Duration) bool {
	return c.Job.Class != Interactive && !org.KeepStarted && r.inTime(c.Job, wait)
}

// inTime reports whether a job may still be tried again after so long.
func (r *runner) inTime(j *Job, wait time.Duration) bool {
	until := j.Created.Add(r.q.settings.now().opts.RetryFor)
	if !j.Deadline.IsZero() && j.Deadline.Before(until) {
		until = j.Deadline
	}
	return time.Now().Add(wait).Before(until)
}

// unreached is the verdict when the provider could not be reached: nothing was sent. The flow
// rests: what one of its jobs has met all would meet. A job for which there is no time left
// fails.
func (r *runner) unreached(c *Claim, why *wire.Error) Verdict {
	rest := Verdict{Kind: Requeue, Wait: reachRest, Unused: true, Refused: true}
	if c.Job.Class == Interactive || r.q.settings.now().opts.RetryFor == 0 {
		return rest
	}
	rest.Wait = min(pause(c.Job), reachMost)
	rest.Failed = rest.Wait < reachMost // no longer pause after a 5xx because of it
	if !r.inTime(c.Job, rest.Wait) {
		return failed(why)
	}
	return rest
}
