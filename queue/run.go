package queue

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/quota"
)

const (
	// soonPark is how long a refused flow rests if money held by other calls may return
	// to its limit at any moment; the end of one of its jobs shortens it. MOMENT in
	// lua/rings.lua is the same number. latePark bounds all other rests, so that a
	// raised limit is noticed.
	soonPark = time.Second
	// alonePark replaces soonPark if no job of the org runs here whose end would
	// shorten the rest: live calls hold the money.
	alonePark = 250 * time.Millisecond
	latePark  = 30 * time.Second
	// storeRest and reachRest are the rests after Redis or the provider was
	// unreachable.
	storeRest = time.Second
	reachRest = 2 * time.Second
	// A job that a brake refuses rests for a tenth of its age within these bounds, so that many of them cost
	// little. Queue.Unpark ends the rest once the brake is released.
	minBrakeRest = 5 * time.Second
	maxBrakeRest = time.Minute
	// stopRest is the rest of an org's jobs while its spending is stopped.
	stopRest = 2 * time.Second
	// reloadRest is the minimum rest of jobs that another pool has no quota for.
	reloadRest = 100 * time.Millisecond
)

// NewRunner returns the runner that executes jobs as paid calls: hold, start, forward into
// the job's output, settle. The money is settled before the job is reported as done. scan
// holds the bounds under which requests were accepted. A nil tracer disables tracing.
func NewRunner(q *Queue, g *guard.Guard, scan wire.Limits, log *slog.Logger,
	tracer *tracing.Tracer,
) func(context.Context, *Claim) Verdict {
	r := &runner{q: q, g: g, scan: scan, log: log, tracer: tracer}
	if tracer == nil {
		return r.run
	}
	return r.traced
}

type runner struct {
	q      *Queue
	g      *guard.Guard
	scan   wire.Limits
	log    *slog.Logger
	tracer *tracing.Tracer

	orgs orgRuns
}

// traced is run within a span that continues the trace of the job's caller.
func (r *runner) traced(ctx context.Context, c *Claim) Verdict {
	waiting, wait := r.tracer.Resume(ctx, "wait in queue", c.Job.Trace, c.Job.Created)
	wait.End()
	ctx, span := r.tracer.Resume(ctx, "run job", cmp.Or(c.Job.Trace, tracing.Context(waiting)), time.Now())
	defer span.End()
	if !span.On() {
		return r.run(ctx, c)
	}
	span.String("llmguard.job", c.Job.ID)
	span.String("llmguard.org", c.Job.Org)
	span.String("llmguard.user", c.Job.User)
	span.String("llmguard.pool", c.Job.Pool)
	span.String("llmguard.class", c.Job.Class.String())
	span.String("gen_ai.request.model", c.Job.Model)
	v := r.run(ctx, c)
	span.Int("llmguard.attempt", int64(c.Job.Attempt))
	span.String("llmguard.verdict", v.Kind.String())
	if v.Kind == Fail {
		span.Fail("job_failed")
	}
	return v
}

func (r *runner) run(ctx context.Context, c *Claim) Verdict {
	if c.Recovered != nil {
		return *c.Recovered
	}
	plan, err := r.plan(ctx, c)
	if errors.Is(err, budget.ErrUnavailable) {
		return Verdict{Kind: Requeue, Wait: storeRest, Unused: true}
	}
	if err != nil {
		return r.noted(ctx, c.Job, failed(err), err, guard.Refusing(err, guard.Caller{}, nil))
	}
	if plan.Caller.Org.KeepStarted && c.Job.Tries > 0 {
		return failed(endError("interrupted"))
	}
	org := r.orgs.enter(c.Job.Org)
	defer org.leave()
	_, before := org.now()
	ctx, stop := stoppable(ctx)
	defer stop()
	q := &claimedQuota{queue: r.q, claim: c, org: org}
	defer q.end()
	call, err := r.g.Run(ctx, plan, r.attempt(c, plan, q), &claimOutput{claim: c})
	if call == nil {
		v := refused(c.Job, err, org, before)
		return r.noted(ctx, c.Job, v, err, guard.Refusing(err, plan.Caller, plan))
	}
	if unsent := (*unsentError)(nil); errors.As(err, &unsent) {
		return unsent.verdict
	}
	v := q.used(r.verdict(ctx, c, call, err), call)
	r.q.Learn(call)
	r.record(ctx, c, call, v, err)
	return r.noted(ctx, c.Job, v, err, call.Refusing(err))
}

// noted counts a job that was refused, or that has to wait for the first time, and returns the verdict with the cause.
func (r *runner) noted(ctx context.Context, j *Job, v Verdict, err error, c guard.RefusedCall) Verdict {
	if c.Cause == "" || errors.Is(err, quota.ErrStale) { // this process was too busy
		return v
	}
	c.Call = j.Call()
	switch v.Kind {
	case Fail:
		c.Before, c.Since = r.q.reader.counted(ctx, j)
		if v.Error != nil {
			c.Status = v.Error.Status
		}
		r.g.Refused(c)
	case Park, Requeue, Retry, Rest:
		v.Cause = c.Cause
		if j.WaitCause == "" {
			v.WaitAt = time.Now()
			c.At, c.Waited, c.Status = v.WaitAt, true, 0
			r.g.Refused(c)
		}
	}
	return v
}

// attempt returns the guard's view of a claim. Each attempt holds under its own id, so that
// a worker that lost its claim can neither settle nor void its successor's hold.
func (r *runner) attempt(c *Claim, plan *guard.Plan, q *claimedQuota) guard.Attempt {
	a := guard.Attempt{
		ID: wire.NewCallID(), Number: c.Job.Attempt + 1, JobID: c.Job.ID, Created: c.Job.Created, Quota: q,
		Header: c.Job.Header, Query: c.Job.Query, Sent: c.dropBody, Repeats: r.repeats(c, plan.Caller.Org, pause(c.Job)),
	}
	if c.Job.Class != Interactive {
		a.Class = c.Job.Class.String()
	}
	if plan.Request.Background {
		a.Alias = ResponseID(c.Job.ID)
	}
	return a
}

// record logs one line per run, like a live call's access record.
func (r *runner) record(ctx context.Context, c *Claim, call *guard.Call, v Verdict, err error) {
	j, result := c.Job, &call.Result
	attrs := []slog.Attr{
		slog.String("id", call.ID), slog.String("job", j.ID), slog.Int("attempt", j.Attempt),
		slog.String("verdict", v.Kind.String()),
		slog.String("org", j.Org), slog.String("user", j.User), slog.String("key", j.Key),
		slog.String("model", j.Model), slog.String("pool", call.Plan.Target.Pool),
		slog.String("outcome", string(result.Outcome)),
		slog.Int("status", result.Status), slog.Int64("held_nano_usd", int64(call.Hold.Max.Cost)),
		slog.Int64("cost_nano_usd", int64(result.Cost)), slog.Bool("estimated", result.Estimated),
		slog.String("class", j.Class.String()), slog.Bool("stream", j.Stream),
		slog.Int64("held_tokens", call.Hold.Max.Tokens), slog.Int64("quota_tokens", call.Plan.Quota),
		slog.Int64("tokens", result.Usage.Input+result.Usage.Output),
		slog.Duration("waited", call.Waited), slog.Duration("took", result.Took),
		slog.String("upstream_id", result.UpstreamID),
	}
	if j.Run != "" {
		attrs = append(attrs, slog.String("run", string(j.Run)))
	}
	if j.Labels != "" {
		attrs = append(attrs, slog.String("labels", string(j.Labels)))
	}
	if request := call.Plan.Fingerprint; request != "" {
		attrs = append(attrs, slog.String("request", request))
	}
	if call.Cache != "" {
		attrs = append(attrs, slog.String("cache", call.Cache))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	r.log.LogAttrs(ctx, slog.LevelInfo, "job", attrs...)
}

// plan prices the job again, under the current configuration.
func (r *runner) plan(ctx context.Context, c *Claim) (*guard.Plan, error) {
	caller, err := r.g.Policy().Caller(c.Job.Org, c.Job.User, c.Job.Key, c.Job.IP)
	if err == nil {
		err = caller.Was(c.Job.Born, c.Job.UserBorn)
	}
	if err != nil {
		return nil, wire.Forbidden("org_gone", "%v", err)
	}
	caller.Labels, caller.Run, caller.Batch = c.Job.Labels, c.Job.Run, c.Job.Batch
	req, err := wire.Scan(c.Job.Endpoint, c.Body, r.scan)
	if err != nil {
		return nil, err
	}
	req.Betas = wire.Betas(c.Job.Header)
	plan, err := r.g.Plans.PrepareKept(ctx, caller, req)
	c.priced()
	return plan, err
}

// refused returns the verdict for a job whose hold was refused. before is the org's count
// of ended calls when the run started. A connected caller that would have to wait past its
// deadline gets the refusal immediately.
func refused(j *Job, err error, org *orgRun, before int) Verdict {
	var exceeded *guard.Refusal
	var stopped *guard.StoppedError
	var braked *guard.BrakedError
	switch {
	case errors.As(err, &stopped):
		return Verdict{Kind: Park, Scope: ParkOrg, Wait: stopRest, Unused: true}
	case errors.As(err, &braked) && braked.Held:
		return Verdict{Kind: Requeue, Wait: soonPark, Unused: true}
	case errors.As(err, &braked) && j.Class == Interactive:
		return failed(braked.Public())
	case errors.As(err, &braked):
		rest := min(max(time.Since(j.Created)/10, minBrakeRest), maxBrakeRest)
		return Verdict{Kind: Rest, Wait: rest, Unused: true}
	case !errors.As(err, &exceeded):
		return Verdict{Kind: Requeue, Wait: storeRest, Unused: true}
	}
	outlasts := j.Class == Interactive && !exceeded.Soon && exceeded.Binding.Wait > time.Until(j.Deadline)
	if exceeded.Final() || outlasts {
		return failed(exceeded.Public())
	}
	if exceeded.OfRun() { // without a park, because other runs of the user may have room
		return Verdict{Kind: Requeue, Wait: soonPark, Unused: true}
	}
	scope, rest := RestOf(exceeded.Limits(), exceeded.ExceededError)
	running, ended := org.now()
	switch {
	case exceeded.Soon && ended > before:
		rest = time.Millisecond // the ended call's money may be free since the refusal, and its end shortened no park
	case exceeded.Soon && running == 0:
		rest = min(rest, alonePark)
	}
	return Verdict{Kind: Park, Scope: scope, Wait: rest, Unused: true}
}

// RestOf returns what a refusal of a job under these limits holds back, and for how long.
func RestOf(limits []budget.Limit, e *budget.ExceededError) (Scope, time.Duration) {
	rest := min(e.Binding.Wait, latePark)
	if e.Soon {
		rest = min(rest, soonPark)
		if rest <= 0 {
			rest = soonPark
		}
	}
	scope := scopeOf(limits, e.Binding)
	if e.Cap != nil {
		scope = capScope(*e.Cap, e.Binding)
	}
	if scope == ParkPool {
		rest = min(rest, soonPark)
	}
	return scope, max(rest, time.Millisecond)
}

// capScope returns what a refusing spend cap holds back. If the cap is used up, that is the
// whole pool for a second, whichever org the job belongs to: the shared cap is then checked
// once a second and not once per org. While a hundredth or more remains, the job is merely
// a large one and others do not wait for it.
func capScope(spend budget.Cap, binding budget.Status) Scope {
	scope := scopeOf(spend.Limits, binding)
	if scope == ParkOrg && binding.Remaining < max(binding.Amount/100, 1) {
		return ParkPool
	}
	return scope
}

// scopeOf returns what a refusing limit holds back: the jobs of its subject, and only those
// of the model if the limit is for certain models or endpoints. Limits on addresses hold
// back the flow.
func scopeOf(limits []budget.Limit, binding budget.Status) Scope {
	some := slices.ContainsFunc(limits, func(l budget.Limit) bool {
		return l.ID == binding.LimitID && len(l.Models)+len(l.Endpoints) > 0
	})
	switch {
	case binding.Subject == budget.Org && some:
		return ParkOrgModel
	case binding.Subject == budget.Org:
		return ParkOrg
	case binding.Subject == budget.Key && some:
		return ParkKeyModel
	case binding.Subject == budget.Key:
		return ParkKey
	case some:
		return ParkFlowModel
	}
	return ParkFlow
}

// failed returns the verdict for an error that retrying cannot fix.
func failed(err error) Verdict {
	var public *wire.Error
	if !errors.As(err, &public) {
		public = wire.Internal(err)
	}
	return Verdict{Kind: Fail, Error: public, Unused: true}
}

// stoppable maps the reasons for stopping a run onto the guard's two: the caller left (the
// org's policy decides), or the call must end now.
func stoppable(ctx context.Context) (context.Context, func()) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, ErrCallerGone):
			cancel(ErrCallerGone)
		case errors.Is(cause, ErrShutdown), errors.Is(cause, ErrLost):
			cancel(guard.ErrRepeated)
		default:
			cancel(guard.ErrCancelled)
		}
	})
	return out, func() { stop(); cancel(nil) }
}

// verdict judges a started attempt by how its call ended.
func (r *runner) verdict(ctx context.Context, c *Claim, call *guard.Call, err error) Verdict {
	result := &call.Result
	v := Verdict{Status: result.Status, Counted: call.Counted()}
	var busy *guard.BusyError
	var failure *guard.FailureError
	var stopped *guard.StoppedError
	var public *wire.Error
	switch {
	case errors.As(err, &stopped):
		return Verdict{Kind: Park, Scope: ParkOrg, Wait: stopRest, Unused: true, Refused: true}
	case errors.As(err, &failure):
		v.Kind = Retry
		v.Wait = pause(c.Job)
		v.Failed = true
	case err == nil && result.Refusal != nil:
		v.Kind, v.Error = Fail, result.Refusal
	case err == nil && (result.Ending != nil || result.Outcome == guard.Broken):
		// The answer is as complete as it gets: it ends in an error event.
		v.Kind, v.Error = Fail, result.Ending
		if v.Error == nil {
			v.Error = wire.BadGateway("The provider's stream ended before the answer was complete", nil)
		}
		endErr := c.Output().End(ctx, true, v)
		if endErr != nil {
			r.log.Warn("end of an interrupted answer not recorded", "job", c.Job.ID, "err", endErr)
		}
	case err == nil:
		v.Kind = Done
	case errors.Is(err, quota.ErrStale):
		r.q.metrics.stale.WithLabelValues(c.p.ID).Inc()
		return Verdict{Kind: Requeue, Unused: true, Refused: true}
	case errors.As(err, &busy):
		return Verdict{Kind: Requeue, Refused: true}
	case errors.Is(err, ErrOutputFull):
		v.Kind = Fail
		v.Error = &wire.Error{
			Status: http.StatusBadGateway, Type: "server_error", Code: "answer_too_large",
			Message: "The answer is larger than the queue can store. It was billed. Send the call without queueing, or " +
				"request less output",
		}
	case errors.Is(err, errNotKept):
		v.Kind, v.Error = Fail, errNotKept
	case errors.Is(err, guard.ErrGone):
		v.Kind = Cancel
		if cause := context.Cause(c.ctx); errors.Is(cause, ErrShutdown) {
			v.Kind = Requeue
		}
	case errors.As(err, &public) && result.Outcome == guard.Unsent:
		return r.unreached(c, public)
	case errors.As(err, &public) && result.Outcome == guard.Broken && !call.Plan.Caller.Org.KeepStarted &&
		!c.Output().Started():
		return Verdict{Kind: Requeue, Wait: reachRest}
	default:
		v.Kind = Fail
		if !errors.As(err, &v.Error) {
			v.Error = wire.Internal(err)
		}
	}
	return v
}
