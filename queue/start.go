package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/llmguard/llmguard/internal/tasks"
	"github.com/llmguard/llmguard/quota"
)

// grantMoves is the age from which a job's booking is moved to the present when the job
// starts: preparation took so long that sending could use up the rest of the grant's life.
const grantMoves = quota.GrantLife / 5

// errNoQuota reports that the provider's quota has no room for a claim whose preparation
// took long.
var errNoQuota = errors.New("queue: no quota to start with")

// Start begins the attempt: from here on it counts, and the request may reach the provider.
// ErrLost and ErrGone (the job was cancelled, has expired, has no caller, has no attempts
// left, or died after part of its answer was sent) end the run, and its verdict is ignored.
// Other errors come from Redis; the runner may retry or return Requeue, Unused. Start is
// idempotent.
func (c *Claim) Start(ctx context.Context) error {
	if c.started {
		return nil
	}
	return c.begin(ctx)
}

// Renew makes the grant of a started claim fresh again after this process was too busy to
// send the request in time.
func (c *Claim) Renew(ctx context.Context) error { return c.begin(ctx) }

func (c *Claim) begin(ctx context.Context) error {
	if c.closed {
		return ErrGone
	}
	if c.partial && c.Job.Class == Interactive && c.Job.Stream {
		err := c.finish(ctx, Failed, Verdict{Unused: true}, "interrupted")
		if err == nil {
			c.closed, err = true, ErrGone
		}
		return err
	}
	reply, sent, err := c.p.starts.doAt(ctx, c.q, c.p, jobKey(c.p.ID, c.id), c.id, c.token)
	if err != nil {
		return err
	}
	w, err := words("start", reply, 1)
	if err != nil {
		return err
	}
	switch {
	case w[0] == "ok" && len(w) == 4:
		c.free, c.born = w[3] == quota.Ageless, sent.Add(-max(micros(w[3]), 0))
		if !c.started {
			c.began(w[1], w[2])
		}
		return nil
	case w[0] == "lost":
		c.closed = !c.started // the verdict of a started attempt ends its output
		return ErrLost
	case w[0] == "unseen":
		return errUnseen
	case w[0] == "stale":
		return errNoQuota
	case len(w) == 3: // gone, without its caller, or ended by this call
		c.closed = !c.started
		if w[0] == "ended" {
			c.endedEarly(ctx, State(w[1]))
		}
		return fmt.Errorf("%w: %s (%s)", ErrGone, w[1], w[2])
	}
	return fmt.Errorf("queue: start replied %q", reply)
}

// began records a new attempt.
func (c *Claim) began(attempt, at string) {
	c.started = true
	c.Job.State, c.Job.Started = Running, instant(at)
	c.Job.Attempt, _ = strconv.Atoi(attempt)
	c.Job.Tries++
	c.q.metrics.waited.WithLabelValues(c.p.ID, c.Job.Class.String()).Observe(c.Job.Waited().Seconds())
}

// endedEarly records that start has ended the job.
func (c *Claim) endedEarly(ctx context.Context, state State) {
	c.q.metrics.ended.WithLabelValues(c.p.ID, string(state)).Inc()
	c.settle(state, state == Failed)
	if state == Failed && c.Job.Class != Batch {
		c.after = tasks.ErrDead
		c.q.dead.keep(ctx, c.Job)
	}
}
