package proxy

import (
	"errors"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// refusing describes how the request was refused. The cause is empty if it was not, or if only its worker knows.
func (x *request) refusing() guard.RefusedCall {
	switch {
	case x.outlasted != nil:
		return *x.outlasted
	case x.job != "":
		return guard.RefusedCall{}
	case x.call != nil:
		return x.call.Refusing(x.err)
	}
	return guard.Refusing(x.err, x.caller, x.plan)
}

// countRefused counts the request if it was refused, also inside a stream. A worker counts the refusals of its jobs.
func (x *request) countRefused() {
	if x.status == 0 || errors.Is(x.err, guard.ErrGone) || x.job != "" && x.outlasted == nil {
		return // the caller left, or the job's end is counted
	}
	c := x.refusing()
	if x.request.Method == http.MethodGet && c.Cause.Kind() != budget.CauseRequests { // no call
		c.Cause = ""
	}
	c.ID, c.JobID, c.At = x.id, x.job, time.Now()
	public, ok := errors.AsType[*wire.Error](x.err)
	switch {
	case x.status >= http.StatusBadRequest:
		c.Status = x.status
	case ok:
		c.Status = public.Status
	}
	if c.Cause == "" && !wire.OverLimit(c.Status) {
		return
	}
	if x.wait != nil {
		c.Before, c.Since = x.wait.Cause, x.wait.At
	}
	x.server.guard.Refused(c)
}

// waits counts that the call begins to wait as a job.
func (x *request) waits(job *queue.Job, c guard.RefusedCall) {
	c.ID, c.JobID, c.Waited = x.id, job.ID, true
	x.wait = &c
	x.server.guard.Refused(c)
}

// rejoins counts that a repetition of a call waits for its job, whose first caller was refused.
func (x *request) rejoins(job *queue.Job) {
	if job.State != queue.Queued || job.Class != queue.Interactive || job.WaitAt.IsZero() {
		return
	}
	c := job.Refusing()
	c.Cause, c.At = job.WaitCause, job.WaitAt // also what a worker takes back if the job fails
	x.waits(job, c)
}

// outlast notes that a call is refused because it would wait, or has waited, too long for a job at its place.
func (x *request) outlast(job *queue.Job, at queue.Place) {
	c := job.Refusing()
	if job.Cause == "" && x.wait != nil {
		c.Cause = x.wait.Cause
	}
	// It is not only a worker or the next attempt. If the job's provider paused its pool, that is the provider's refusal.
	paused := c.Cause.Kind() == budget.CauseProvider && at.Cause.Kind() == budget.CausePool
	if at.Cause.Name() != "" && !paused {
		c.Cause = at.Cause
		c.Wait = max(at.ETA, 0)
	}
	if x.wait != nil && x.wait.Cause == c.Cause {
		c.Metric, c.Needed, c.Left = x.wait.Metric, x.wait.Needed, x.wait.Left
	}
	x.outlasted = &c
}
