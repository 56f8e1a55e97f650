package guard

import (
	"errors"
	"net/http"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/quota"
)

// RefusedCall is a call of an org that was refused or has to wait.
type RefusedCall struct {
	budget.RefusedCall // the org is empty if it is not known

	reached *budget.Run // the run whose budget refused it for good
}

// Refused counts and records that a call was refused or begins to wait. It does not wait for Redis. Calls without an
// org or a cause are only in the metrics.
func (g *Guard) Refused(c RefusedCall) {
	if !c.Waited {
		org := unknownOrg
		if c.Org != "" {
			org = g.metrics.orgs.of(c.Org).name
		}
		g.metrics.refused.count(org, c.Cause)
	}
	if c.Cause == "" || c.Org == "" {
		return
	}
	g.budget.Refusals.Add(c.RefusedCall)
	if c.reached != nil && !c.Waited && g.runReached != nil {
		g.runReached(*c.reached)
	}
}

// Refusing describes a call that err refuses or makes wait, without its ids, time and status. The cause is empty if
// err is the caller's own mistake or an outage of Redis. The plan is nil if the call has none.
func Refusing(err error, c Caller, p *Plan) RefusedCall {
	var refused *Refusal
	limited := errors.As(err, &refused) && refused.ExceededError != nil
	if p == nil && limited {
		p = refused.plan
	}
	out := RefusedCall{RefusedCall: budget.RefusedCall{Cause: causeOf(err, c, p)}}
	if c.Org != nil {
		out.Call = c.subject()
	}
	if p != nil {
		out.Model, out.Endpoint = p.Request.Model, string(p.Request.Endpoint)
	}
	var noQuota *quota.BusyError
	var busy *BusyError
	switch {
	case limited:
		refused.describe(&out)
	case errors.As(err, &noQuota):
		out.Wait = noQuota.Wait
	case errors.As(err, &busy):
		out.Wait = busy.RetryAfter
	}
	return out
}

func (e *Refusal) describe(out *RefusedCall) {
	b := e.Binding
	out.Metric, out.Needed, out.Left = b.Metric, e.Requested, b.Remaining
	if !e.Soon && !b.Never {
		out.Wait = b.Wait
	}
	if r := e.Run(); r != nil && e.Final() && !e.Away && b.Metric == budget.Cost {
		out.reached = r
	}
}

// Refusing describes a call that was refused after it began: by err, by a limit without capacity for more of its
// output, or because its provider refused it or failed. The cause is empty if it was not.
func (c *Call) Refusing(err error) RefusedCall {
	if c.cut != nil {
		err = c.cut
	}
	out := Refusing(err, c.Plan.Caller, c.Plan)
	if out.Cause == "" && c.providerFailed(err) {
		out.Cause = c.Plan.providerCause()
		out.Wait = c.Result.RetryAfter
	}
	switch r := &c.Result; {
	case r.Ending != nil:
		out.Status = r.Ending.Status
	case r.Refusal != nil:
		out.Status = r.Refusal.Status
	}
	return out
}

// providerFailed reports whether the provider refused the call, failed, or was not reached. err is how the call ended.
func (c *Call) providerFailed(err error) bool {
	switch r := &c.Result; r.Outcome {
	case Broken, Busy:
		return true
	case UpstreamError, Rejected:
		return r.Status >= http.StatusInternalServerError || r.Status == http.StatusTooManyRequests ||
			r.Status == http.StatusUnauthorized || r.Status == http.StatusRequestTimeout
	case Unsent:
		return NotSent(err)
	}
	return false
}

// causeOf returns why err refuses a call or makes it wait; empty if no rule and no provider does.
func causeOf(err error, c Caller, p *Plan) budget.Cause {
	var stopped *StoppedError
	var caused interface{ Cause() budget.Cause }
	var noQuota *quota.BusyError
	var busy *BusyError
	var failed *FailureError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &stopped) && !stopped.Everybody && c.Org != nil:
		return budget.NewCause(budget.CauseStop, c.Org.ID)
	case errors.As(err, &stopped):
		return budget.NewCause(budget.CauseStop, budget.StopAll)
	case errors.As(err, &caused):
		return caused.Cause()
	case p != nil && (errors.As(err, &noQuota) || errors.Is(err, quota.ErrStale)):
		return p.PoolCause()
	case p != nil && (errors.As(err, &busy) || errors.As(err, &failed)):
		return p.providerCause()
	case errors.Is(err, errRunEnded):
		return budget.NewCause(budget.CauseRun, budget.RunEnded)
	}
	return memoryCause(err)
}

// memoryCause returns whose memory an error lacks; empty if it lacks none.
func memoryCause(err error) budget.Cause {
	var redis *capacity.FullError
	var bodies *spool.FullError
	switch {
	case errors.As(err, &redis) && redis.Org:
		return budget.NewCause(budget.CauseMemory, budget.MemoryOrg)
	case capacity.IsFull(err), errors.Is(err, budget.ErrFull):
		return budget.NewCause(budget.CauseMemory, budget.MemoryStore)
	case errors.As(err, &bodies):
		return budget.NewCause(budget.CauseMemory, budget.MemoryProxy)
	}
	return ""
}

// Cause returns the brake.
func (e *BrakedError) Cause() budget.Cause { return budget.NewCause(budget.CauseBrake, e.Brake) }

// Cause returns what refused.
func (e *Refusal) Cause() budget.Cause {
	kind := budget.CauseLimit
	switch {
	case e.ofRequests:
		kind = budget.CauseRequests
	case e.Cap != nil:
		kind = budget.CauseCap
	case e.OfRun():
		kind = budget.CauseRun
	}
	return budget.NewCause(kind, e.Binding.LimitID)
}

// PoolCause is the cause of a call that waits for its turn at the provider's quota.
func (p *Plan) PoolCause() budget.Cause { return budget.NewCause(budget.CausePool, p.Target.Pool) }

func (p *Plan) providerCause() budget.Cause {
	return budget.NewCause(budget.CauseProvider, p.Target.Provider.ID)
}
