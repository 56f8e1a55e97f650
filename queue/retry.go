package queue

import (
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
)

const (
	// retryRest is the pause after the first attempt that failed at the provider; each
	// further pause is twice as long. A flow whose provider is unreachable rests at
	// most reachMost, because a single job of it tests the connection for all.
	retryRest = 2 * time.Second
	reachMost = 30 * time.Second
)

// pause returns how long a job waits for its next attempt after one that failed at the
// provider.
func pause(j *Job) time.Duration { return retryRest << min(j.Retries, 30) }

// repeats reports whether a job is retried after `wait` if the provider fails the attempt:
// no caller is connected, its org does not forbid it, and the time is not up.
func (r *runner) repeats(c *Claim, org *guard.Org, wait time.Duration) bool {
	return c.Job.Class != Interactive && !org.KeepStarted && r.inTime(c.Job, wait)
}

// inTime reports whether a job may still be retried after `wait`.
func (r *runner) inTime(j *Job, wait time.Duration) bool {
	until := j.Created.Add(r.q.settings.now().opts.RetryFor)
	if !j.Deadline.IsZero() && j.Deadline.Before(until) {
		until = j.Deadline
	}
	return time.Now().Add(wait).Before(until)
}

// unreached returns the verdict when the provider was unreachable and nothing was sent. The
// flow rests, because all its jobs would fail the same way. A job with no time left fails.
func (r *runner) unreached(c *Claim, why *wire.Error) Verdict {
	rest := Verdict{Kind: Requeue, Wait: reachRest, Unused: true, Refused: true}
	if c.Job.Class == Interactive || r.q.settings.now().opts.RetryFor == 0 {
		return rest
	}
	rest.Wait = min(pause(c.Job), reachMost)
	// At the maximum an attempt no longer counts, so that it does not lengthen the pause after
	// a 5xx.
	rest.Failed = rest.Wait < reachMost
	if !r.inTime(c.Job, rest.Wait) {
		return failed(why)
	}
	return rest
}
