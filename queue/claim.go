package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/quota"
)

var (
	// ErrLost tells that the claim has passed to another worker. It is also the
	// cause of the run's context then.
	ErrLost = errors.New("queue: claim lost")
	// ErrGone tells that the job has ended and must not run.
	ErrGone = errors.New("queue: job has ended")
	// ErrCancelled is the cause of the context of a run whose job was cancelled,
	ErrCancelled = errors.New("queue: job cancelled")
	// ErrCallerGone of one whose caller left an answer that it was reading,
	ErrCallerGone = errors.New("queue: caller gone")
	// errUnseen tells that Redis was unavailable for a while, and the job's caller has not
	// been seen since.
	errUnseen = errors.New("queue: caller not seen yet")
	// ErrShutdown of one that outlasts the worker's ShutdownTimeout.
	ErrShutdown = errors.New("queue: worker shuts down")
)

// Kind is what becomes of a claimed job.
type Kind uint8

// The kinds of verdicts. The zero Kind is none: a runner must choose.
const (
	// Done: the job succeeded; its output is complete.
	Done Kind = 1 + iota
	// Fail: the job failed for good, with Verdict.Error.
	Fail
	// Cancel: it was asked for, and the run has stopped.
	Cancel
	// Park: a limit refused the job; what Verdict.Scope says waits Verdict.Wait.
	Park
	// Requeue: the job goes back to its place; its flow waits Verdict.Wait.
	Requeue
	// Retry: the provider failed the attempt; the job alone waits Verdict.Wait, and others of
	// its flow go on.
	Retry
)

// String is the word for logs.
func (k Kind) String() string {
	switch k {
	case Done:
		return "done"
	case Fail:
		return "fail"
	case Cancel:
		return "cancel"
	case Park:
		return "park"
	case Requeue:
		return "requeue"
	case Retry:
		return "retry"
	default:
		return "none"
	}
}

// Scope is what a refusal parks.
type Scope uint8

// The scopes: all of a flow or org, or only its jobs of the same model, of the
// same key, of the same key and model.
const (
	ParkFlow Scope = iota
	ParkOrg
	ParkFlowModel
	ParkOrgModel
	ParkKey
	ParkKeyModel
	// ParkPool holds back all jobs of the pool; live calls go on.
	ParkPool
)

// Verdict is the outcome of a run.
type Verdict struct {
	Kind  Kind          `json:"kind"`
	Wait  time.Duration `json:"wait,omitempty"`  // of Park and Requeue
	Scope Scope         `json:"scope,omitempty"` // of Park
	Limit string        `json:"limit,omitempty"` // of Park: the limit that refused
	// Charged, Status and Error are recorded as the outcome of Done, Fail and
	// Cancel. Status is that of the answer.
	Charged pricing.Nano `json:"charged,omitempty"`
	Status  int          `json:"status,omitempty"`
	Error   *wire.Error  `json:"error,omitempty"`
	// Unused: nothing was written upstream; the pool's quota returns.
	Unused bool `json:"unused,omitempty"`
	// Refused: the provider refused the started attempt before any work (429,
	// 503); it does not count against MaxAttempts.
	Refused bool `json:"refused,omitempty"`
	// Failed: the provider could not be reached, or failed the attempt; it counts in
	// Job.Retries, and not against MaxAttempts.
	Failed bool `json:"failed,omitempty"`
	// Used is how many tokens the provider counted; 0 when not known.
	Used int64 `json:"used,omitempty"`
}

// used is the number of tokens the provider counted; -1 when not known.
func (v Verdict) used() int64 {
	switch {
	case v.Refused:
		return 0
	case v.Used > 0:
		return v.Used
	}
	return -1
}

// Claim is a worker's lease on a job. The worker renews it and cancels the
// run's context when it is lost. It is for the goroutine of its run.
type Claim struct {
	// Job is the job as it was when claimed. Start updates State, Attempt,
	// Tries and Started.
	Job  *Job
	Body []byte
	// Recovered is set when a dead attempt left a complete answer: its recorded
	// outcome. The runner settles by it, without Start, and returns Done.
	Recovered *Verdict

	ctx     context.Context // of the run
	q       *Queue
	p       *pool
	id      string
	token   string
	tokens  int64         // booked
	booked  time.Duration // at this Redis time
	never   int64         // the provider's tokens a minute, when the job alone is more and has booked nothing
	born    time.Time
	free    bool  // the pool has no quota: what was booked does not grow stale
	unread  error // why Job and Body are not known
	away    bool  // the body is a blob, to which ref refers
	ref     ref
	room    int64        // bytes of the spool's memory that Body takes
	partial bool         // the dead attempt left part of an answer
	held    pricing.Nano // charged if the attempt dies
	started bool
	closed  bool // ended, lost or gone: nothing to conclude
	output  *Output
	answer  int64             // bytes that memory has admitted for the answer
	settled *capacity.Settled // what stays of a job that this claim has ended
	done    bool              // nobody asks for the body of that any more

	cancel context.CancelCauseFunc
}

// Fresh reports whether the request may still be written upstream: the claim
// carries a grant of provider quota, which goes stale after 500 ms. Start and Renew make it
// fresh. A stale claim is returned as Requeue, Unused.
func (c *Claim) Fresh() bool { return c.free || time.Since(c.born) < quota.GrantLife }

// Output returns where the answer of the started attempt is recorded; nil
// before Start.
func (c *Claim) Output() *Output {
	if c.output == nil && c.started {
		c.output = newOutput(c.ctx, c.q, c.Job, c.Job.Attempt)
		c.output.admitted = max(c.answer, firstAnswer)
	}
	return c.output
}

// finish writes the terminal state.
func (c *Claim) finish(ctx context.Context, state State, v Verdict, code string) error {
	text := []byte(nil)
	if v.Error != nil {
		var err error
		text, err = json.Marshal(v.Error)
		if err != nil {
			return fmt.Errorf("queue: error of %s: %w", c.id, err)
		}
		code = v.Error.Code
	}
	dead := state == Failed && c.Job.Class != Batch && (v.Error == nil || v.Error.Status >= 500)
	args := []any{c.id, c.token, string(state), c.quotaUse(v), flag(dead)}
	args = append(args, c.charge(v)...)
	args = append(args, flag(c.started || c.Recovered != nil), "token", c.token)
	if v.Charged != 0 {
		args = append(args, "charged", int64(v.Charged))
	}
	if v.Status != 0 {
		args = append(args, "status", v.Status)
	}
	if code != "" {
		args = append(args, "code", code)
	}
	if len(text) > 0 {
		args = append(args, "error", text)
	}
	reply, err := c.p.finishes.do(ctx, c.q, c.p, jobKey(c.p.ID, c.id), args...)
	if err != nil {
		return err
	}
	switch {
	case reply == "ok":
		c.q.metrics.ended.WithLabelValues(c.p.ID, string(state)).Inc()
		c.q.endings.announceSoon(c.Job)
		c.settle(state, dead)
		if dead {
			c.q.dead.keepBody(ctx, c.id)
		}
		return nil
	case reply == "lost":
		return ErrLost
	}
	return fmt.Errorf("%w: %s", ErrGone, reply)
}

// quotaUse says how the quota of the claim was used.
func (c *Claim) quotaUse(v Verdict) string {
	if c.never > 0 {
		return quota.AsBooked // which is nothing
	}
	return c.p.quota.Use(v.Unused, v.used())
}

// charge is what the attempt was charged, and what was held for it; "" when none was
// started.
func (c *Claim) charge(v Verdict) []any {
	if !c.started {
		return []any{int64(v.Charged), ""}
	}
	return []any{int64(v.Charged), int64(c.held)}
}

// release puts the job back.
func (c *Claim) release(ctx context.Context, v Verdict, tries string) error {
	if err := c.shrink(ctx); err != nil {
		return err
	}
	park := "-"
	if v.Wait > 0 && v.Kind != Retry {
		park = "u"
		if v.Kind == Park {
			park = string("uoUOKLp"[v.Scope])
		}
	}
	args := append([]any{
		c.id, c.token, park, v.Wait.Microseconds(), c.quotaUse(v), tries, c.p.ResultTTL.Milliseconds(),
	}, c.p.limits...)
	args = append(args, c.charge(v)...)
	how := ""
	switch {
	case v.Kind == Retry:
		how = "alone"
	case v.Failed:
		how = "flow"
	}
	args = append(args, how, v.Limit)
	reply, err := c.q.scripts.eval(ctx, "release", releaseScript, c.p.with(jobKey(c.p.ID, c.id)), args...)
	switch {
	case err != nil:
		return err
	case reply == "ok":
		if how != "" {
			c.q.metrics.retries.WithLabelValues(c.p.ID).Inc()
		}
		return nil
	case reply == "lost":
		return ErrLost
	case reply == "ended cancelled":
		c.settle(Cancelled, false)
		c.q.metrics.ended.WithLabelValues(c.p.ID, string(Cancelled)).Inc()
	}
	return fmt.Errorf("%w: %s", ErrGone, reply)
}

// conclude carries the verdict out; it tries until it is known, or ctx ends.
func (c *Claim) conclude(ctx context.Context, v Verdict) error {
	if c.closed {
		return nil
	}
	for {
		err := c.concludeOnce(ctx, v)
		if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrGone) {
			c.closed = true
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case <-time.After(flushRetry):
		}
	}
}

func (c *Claim) concludeOnce(ctx context.Context, v Verdict) error {
	if c.output != nil {
		switch {
		case v.Kind == Done || c.output.Started():
			err := c.output.End(ctx, v.Kind == Done, v)
			switch {
			case errors.Is(err, errNotKept) && v.Kind == Done:
				v.Kind, v.Error = Fail, errNotKept
			case err != nil && !errors.Is(err, errNotKept):
				return err
			}
		default:
			c.output.stop()
		}
	}
	switch v.Kind {
	case Done:
		return c.finish(ctx, Succeeded, v, "")
	case Fail:
		return c.finish(ctx, Failed, v, "failed")
	case Cancel:
		return c.finish(ctx, Cancelled, v, "cancelled")
	}
	tries := "0"
	switch {
	case v.Refused, v.Failed:
		tries = "-1"
	case v.Kind == 0: // the runner panicked or gave no verdict
		tries = "+1"
	}
	return c.release(ctx, v, tries)
}
