package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/tasks"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/quota"
)

var (
	// ErrLost reports that the claim has passed to another worker. It is then also the
	// cause of the run's context.
	ErrLost = errors.New("queue: claim lost")
	// ErrGone reports that the job has ended and must not run.
	ErrGone = errors.New("queue: job has ended")
	// ErrCancelled is the cause of the run's context when the job was cancelled.
	ErrCancelled = errors.New("queue: job cancelled")
	// ErrCallerGone is the cause when the caller disconnected while reading the answer.
	ErrCallerGone = errors.New("queue: caller gone")
	// errUnseen reports that Redis was unavailable for a while and the job's caller has
	// not been seen since.
	errUnseen = errors.New("queue: caller not seen yet")
	// ErrShutdown is the cause when the run outlasts the worker's ShutdownTimeout.
	ErrShutdown = errors.New("queue: worker is shutting down")
)

// Kind says what happens to a claimed job after its run.
type Kind uint8

// The kinds of verdicts. The zero Kind is none of them: a runner must choose one.
const (
	// Done means the job succeeded and its output is complete.
	Done Kind = 1 + iota
	// Fail means the job failed for good, with Verdict.Error.
	Fail
	// Cancel means the job was cancelled and its run has stopped.
	Cancel
	// Park means a limit refused the job: everything in Verdict.Scope waits
	// Verdict.Wait.
	Park
	// Requeue puts the job back in its place; its flow waits Verdict.Wait.
	Requeue
	// Retry means the attempt failed at the provider: this job alone waits
	// Verdict.Wait, and the rest of its flow continues.
	Retry
	// Rest means a brake refused the job: as Retry, but no attempt failed.
	Rest
)

// String returns the kind's name for logs.
func (k Kind) String() string {
	names := [...]string{"none", "done", "fail", "cancel", "park", "requeue", "retry", "rest"}
	if int(k) >= len(names) {
		return names[0]
	}
	return names[k]
}

// Scope says which jobs a refusal parks.
type Scope uint8

// The scopes: all jobs of a flow or org, or only those with the same model, the same key,
// or both.
const (
	ParkFlow Scope = iota
	ParkOrg
	ParkFlowModel
	ParkOrgModel
	ParkKey
	ParkKeyModel
	// ParkPool holds back all jobs of the pool; live calls continue.
	ParkPool
)

// Verdict is the outcome of a run.
type Verdict struct {
	Kind  Kind          `json:"kind"`
	Wait  time.Duration `json:"wait,omitempty"`  // for Park, Requeue, Retry and Rest
	Scope Scope         `json:"scope,omitempty"` // for Park
	// Cause is why the job waits; empty if it waits for nothing in particular.
	Cause budget.Cause `json:"limit,omitempty"`
	// WaitAt is since when its wait is counted; zero if it is not, or was counted before.
	WaitAt time.Time `json:"wait_at,omitzero"`
	// Status and Error are recorded as the outcome for Done, Fail and Cancel. Status is the HTTP
	// status of the answer.
	Status int         `json:"status,omitempty"`
	Error  *wire.Error `json:"error,omitempty"`
	// Unused means nothing was written upstream, so the pool gets its quota back.
	Unused bool `json:"unused,omitempty"`
	// Refused means the provider refused the started attempt before doing any work
	// (429, 503 or 529); the attempt does not count against MaxAttempts.
	Refused bool `json:"refused,omitempty"`
	// Failed means the provider was unreachable or failed the attempt. It counts in
	// Job.Retries, not against MaxAttempts.
	Failed bool `json:"failed,omitempty"`
	// Counted is what the provider counted; Used is 0 too if it is unknown.
	quota.Counted
}

// used returns what the provider counted: nothing if it refused.
func (v Verdict) used() quota.Counted {
	switch {
	case v.Refused:
		return quota.Counted{}
	case v.Used > 0:
		return v.Counted
	}
	return quota.Counted{Used: -1}
}

// Claim is a worker's lease on a job. The worker renews it, and cancels the run's context
// if it is lost. Only the goroutine of the run may use it.
type Claim struct {
	// Job is the job as it was when claimed. Start updates State, Attempt, Tries and
	// Started.
	Job  *Job
	Body []byte
	// Recovered is the recorded outcome if a dead attempt left a complete answer. The
	// runner then settles with it and returns Done without calling Start.
	Recovered *Verdict

	ctx     context.Context // of the run
	q       *Queue
	p       *pool
	id      string
	token   string
	tokens  int64         // booked on the pool's TPM
	booked  time.Duration // Redis time of the booking
	never   int64         // the provider's tokens a minute if the job alone exceeds them; nothing is booked then
	born    time.Time
	free    bool  // the pool has no quota, so the booking does not go stale
	unread  error // why Job and Body could not be read
	away    bool  // the body is a blob that ref points to
	ref     ref
	room    int64 // bytes of the spool's memory held for Body
	partial bool  // the dead attempt left part of an answer
	started bool
	closed  bool // ended, lost or gone: nothing left to conclude
	output  *Output
	answer  int64             // bytes reserved in Redis memory for the answer
	settled *capacity.Settled // what remains of a job that this claim ended
	pacer   *pacer            // of the worker that runs it
	after   error             // what becomes of the job's task: see package tasks
	done    bool              // that job's body is no longer needed

	cancel context.CancelCauseFunc
}

// Permit returns quota.ErrStale if the request may no longer be sent upstream. The claim carries a
// grant of provider quota that goes stale after 500 ms; Start and Renew refresh it. Return a stale
// claim as Requeue, Unused.
func (c *Claim) Permit() error {
	if c.free || time.Since(c.born) < quota.GrantLife {
		return nil
	}
	return quota.ErrStale
}

// Output returns the recorder for the answer of the started attempt. It is nil before
// Start.
func (c *Claim) Output() *Output {
	if c.output == nil && c.started {
		c.output = newOutput(c.ctx, c.q, c.Job, c.Job.Attempt)
		c.output.admitted = max(c.answer, firstAnswer)
	}
	return c.output
}

// finish writes the terminal state to Redis.
func (c *Claim) finish(ctx context.Context, state State, v Verdict, code string) error {
	var failure []any
	if v.Error != nil {
		text, err := json.Marshal(v.Error)
		if err != nil {
			return fmt.Errorf("queue: error of %s: %w", c.id, err)
		}
		code, failure = v.Error.Code, []any{"error", text}
	}
	dead := state == Failed && c.Job.Class != Batch && (v.Error == nil || v.Error.Status >= 500)
	args := []any{c.id, c.token, string(state), c.quotaUse(v), flag(dead), "token", c.token}
	if v.Status != 0 {
		args = append(args, "status", v.Status)
	}
	if code != "" {
		args = append(args, "code", code)
	}
	reply, err := c.p.finishes.do(ctx, c.q, c.p, jobKey(c.p.ID, c.id), append(args, failure...)...)
	if err != nil {
		return err
	}
	switch {
	case reply == "ok":
		c.q.metrics.ended.WithLabelValues(c.p.ID, string(state)).Inc()
		c.q.endings.announceSoon(c.Job)
		c.settle(state, dead)
		if dead {
			c.after = tasks.ErrDead
			c.q.dead.keep(ctx, c.Job)
		}
		return nil
	case reply == "lost":
		return ErrLost
	}
	return fmt.Errorf("%w: %s", ErrGone, reply)
}

// quotaUse returns how the claim used its quota, in the scripts' terms.
func (c *Claim) quotaUse(v Verdict) string {
	if c.never > 0 {
		return quota.AsBooked // the booking is zero
	}
	return c.p.quota.Use(v.Unused, v.used())
}

// release returns the job to the queue.
func (c *Claim) release(ctx context.Context, v Verdict, tries string) error {
	if err := c.shrink(ctx); err != nil {
		return err
	}
	park := "-"
	if v.Wait > 0 && v.Kind != Retry && v.Kind != Rest {
		park = "u"
		if v.Kind == Park {
			park = string("uoUOKLp"[v.Scope])
		}
	}
	args := append([]any{
		c.id, c.token, park, v.Wait.Microseconds(), c.quotaUse(v), tries, c.p.ResultTTL.Milliseconds(),
	}, c.p.limits...)
	how := ""
	switch {
	case v.Kind == Retry:
		how = "alone"
	case v.Kind == Rest:
		how = "apart"
	case v.Failed:
		how = "flow"
	}
	args = append(args, how, string(v.Cause), waitText(v.Cause, v.WaitAt))
	reply, err := c.q.scripts.eval(ctx, "release", releaseScript, c.p.with(jobKey(c.p.ID, c.id)), args...)
	switch {
	case err != nil:
		return err
	case reply == "ok":
		c.after = tasks.ErrWaits
		if v.Kind == Retry || v.Kind == Rest {
			c.after = tasks.Rests(v.Wait)
		}
		if how != "" && v.Kind != Rest {
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

// conclude carries out the verdict. It retries until the result is known or ctx is done.
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
	switch {
	case c.output == nil:
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
	case v.Kind == 0: // the runner panicked or returned no verdict
		tries = "+1"
	}
	return c.release(ctx, v, tries)
}
