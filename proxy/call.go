package proxy

import (
	"errors"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

// callHandler serves calls that cost money.
type callHandler struct {
	opts    *Options
	metrics *metrics

	puts  chan struct{} // one slot per concurrent put
	looks chan struct{} // one slot per concurrent lookup of a waiting caller's place
	crowd *callerMemory
	runs  *runTimes
	flows *waitingFlows
	stops *stopWatch

	bodies      *bodyReader
	connections *connections
	repeats     *repeatHandler
	jobs        *jobHandler
}

// begin makes a call that is planned and may be made.
type begin func(x *request, r *http.Request, plan *guard.Plan, wish preferences) error

// metered reads and plans a request to an endpoint that costs money.
func (c *callHandler) metered(ep wire.Endpoint, begin begin) handler {
	if ep.Traits().Form {
		return c.form(ep)
	}
	return func(x *request, r *http.Request, _ string) error {
		body, err := c.bodies.readBody(x, r)
		if err != nil {
			return err
		}
		x.arrived = time.Now()
		req, err := c.bodies.scan(x, ep, body)
		if err != nil {
			return err
		}
		req.Betas = wire.Betas(r.Header)
		if err := x.label(r.Context(), guard.LabelsIn(r.Header, req)); err != nil {
			return err
		}
		plan, err := c.opts.Guard.Plans.PrepareKept(r.Context(), x.caller, req)
		if err != nil {
			return err
		}
		x.body.Shrink()
		x.plan = plan
		if err := x.countFree(r.Context()); err != nil {
			return err
		}
		wish, err := parseWish(r.Header)
		if err != nil {
			return err
		}
		if _, err := guard.ParseCacheWish(r.Header, x.caller.Org); err != nil {
			return err
		}
		wish.webhook, err = c.webhookOf(x.caller.Org.ID, r.Header, wish.async || req.Background)
		if err != nil {
			return err
		}
		if err := wish.prioritize(x, r.Header, plan); err != nil {
			return err
		}
		if plan.Caller.Org.RefusesOverLimit() { // RFC 7240: a preference may be ignored
			wish.async = false
		}
		return begin(x, r, plan, wish)
	}
}

// once serves a call that may already be known.
func (c *callHandler) once(x *request, r *http.Request, plan *guard.Plan, wish preferences) error {
	if !repeatable(r.Header) {
		return c.serve(x, r, plan, wish)
	}
	began := time.Now()
	job, done, err := c.repeats.known(x, r, plan, wish, c.patience(x, r, plan, wish).wait)
	x.waitedForRedis(began)
	switch {
	case err != nil || done:
		return err
	case job == nil:
		return c.serve(x, r, plan, wish)
	case job.State == queue.Succeeded && x.key != nil:
		x.stays, x.replayed = true, true
		c.metrics.again.WithLabelValues("replayed").Inc()
		x.job = job.ID
		x.Header().Set(headerReplayed, "true")
		return c.jobs.replay(r.Context(), x, job)
	}
	x.rejoins(job)
	if wish.async {
		return c.defer202(x, job, wish)
	}
	c.metrics.again.WithLabelValues("rejoined").Inc()
	return c.attend(x, r, job, wish)
}

// serve executes a new call: live if it fits, from the queue if it does not, refused if it never can.
func (c *callHandler) serve(x *request, r *http.Request, plan *guard.Plan, wish preferences) error {
	if err := c.opts.Guard.Stopped(x.caller.Org.ID); err != nil {
		return err
	}
	if wish.async {
		return c.accept(x, r, plan, wish)
	}
	mayWait := !plan.Caller.Org.RefusesOverLimit() && plan.Request.Form == nil
	if mayWait && c.flows.behind(plan) && !plan.Caller.Org.WithoutStore() {
		if err := c.opts.Guard.Plans.Check(r.Context(), plan); err != nil {
			return err
		}
		return c.wait(x, r, plan, wish, nil)
	}
	if x.key != nil {
		x.keep = &recording{body: c.opts.Spool.Memory.Copy(x.caller.Org.ID, maxKept)}
	}
	err := c.live(x, r, plan, wish)
	if !waits(err) || !mayWait {
		return err
	}
	x.keep.close()
	x.keep = nil // the job's output is stored anyway
	return c.wait(x, r, plan, wish, err)
}

// live makes the call immediately. If it fails with an error for which waits is true, nothing was
// charged, sent or written.
func (c *callHandler) live(x *request, r *http.Request, plan *guard.Plan, wish preferences) error {
	a := guard.Attempt{
		ID: x.id, Number: 1, Patience: max(x.left(c.patience(x, r, plan, wish).wait), putTurn), Priority: wish.priority,
		Header: r.Header, Query: r.URL.RawQuery,
	}
	if plan.Request.Form == nil { // a form is read from its files until its answer is complete
		a.Sent = func() {
			plan.Request.Body = nil
			x.body.Close()
		}
	} else { // its files are here, and no job has them
		a.Lane = queue.Lane(plan.Caller.Key, plan.Request.Model)
	}
	call, err := c.opts.Guard.Run(r.Context(), plan, a, x)
	x.call = call
	if err != nil {
		return err // it may wait, with its original plan
	}
	x.plan = call.Plan
	c.opts.Queue.Learn(call)
	if !plan.Request.Stream && call.Result.Outcome == guard.Completed {
		c.runs.add(x.caller.Org.ID, plan.Request.Model, call.Result.Took)
	}
	return nil
}

// waits reports whether a call that failed with err may still run from the queue.
func waits(err error) bool {
	if err == nil {
		return false
	}
	if exceeded, ok := errors.AsType[*guard.Refusal](err); ok {
		return !exceeded.Final() && !exceeded.Away && !exceeded.OfRun()
	}
	if noQuota, ok := errors.AsType[*quota.BusyError](err); ok {
		return !noQuota.Never && !noQuota.Share
	}
	var busy *guard.BusyError
	return errors.As(err, &busy) || errors.Is(err, quota.ErrStale)
}
