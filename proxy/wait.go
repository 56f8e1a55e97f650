package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

// newJob makes the record of a call that waits. Its body goes beside it.
func (c *callHandler) newJob(x *request, r *http.Request, plan *guard.Plan, class queue.Class) *queue.Job {
	return &queue.Job{
		ID: c.opts.Queue.NewID(plan.Target.Pool), Pool: plan.Target.Pool, CallID: x.id,
		Org: x.caller.Org.ID, User: x.caller.User, Key: x.caller.Key, Class: class,
		Endpoint: plan.Request.Endpoint, Model: plan.Request.Model, Stream: plan.Request.Stream,
		Tokens: plan.Quota, Cost: plan.First.Cost, Answer: queue.AnswerBytes(plan),
		Header: kept(r.Header), Query: r.URL.RawQuery, IP: x.caller.IP,
		Trace: tracing.Context(r.Context()),
	}
}

// kept picks the request headers a job takes along.
func kept(h http.Header) http.Header {
	out := http.Header{}
	for _, name := range []string{"Openai-Beta", "X-Client-Request-Id"} {
		if v := h.Values(name); len(v) > 0 {
			out[name] = v
		}
	}
	return out
}

// accept makes a job of a call with Prefer: respond-async. With wait=N it is
// answered as any call when it is done by then.
func (c *callHandler) accept(x *request, r *http.Request, plan *guard.Plan, wish preferences) error {
	if err := c.opts.Guard.Plans.Check(r.Context(), plan); err != nil {
		return err
	}
	job := c.newJob(x, r, plan, queue.Async)
	if c.opts.Webhooks != nil {
		job.Notice = c.opts.Webhooks.JobNotice(job.Org, wish.webhook)
	}
	if most := plan.Caller.Org.MaxWait; most > 0 {
		job.Deadline = time.Now().Add(most)
	}
	if err := c.put(r.Context(), x, job, plan.Request.Body, putTurn); err != nil {
		return err
	}
	x.stays = true
	return c.defer202(x, job, wish)
}

// defer202 waits as long as the caller asked to, then answers with the job.
func (c *callHandler) defer202(x *request, job *queue.Job, wish preferences) error {
	if wish.patience >= time.Second {
		return c.attend(x, x.request, job, wish)
	}
	return c.accepted(x, job, wish)
}

// accepted answers 202 with the job.
func (c *callHandler) accepted(x *request, job *queue.Job, wish preferences) error {
	x.job, x.stays = job.ID, true
	h := x.Header()
	h.Set("Location", "/v1/jobs/"+job.ID)
	h.Set("Preference-Applied", strings.TrimSuffix("respond-async, "+wish.waits, ", "))
	h.Set("Vary", "Prefer")
	v := viewOf(job)
	if place, err := c.placeOf(x.request.Context(), job); err == nil {
		place.Room.Tell(h)
		if job.State == queue.Queued {
			v.place(place)
			tellPlace(h, place)
		}
	}
	return x.json(http.StatusAccepted, v)
}

// put writes a job, and ties the request's key to it first. In a flood the caller waits
// for its turn as long as its patience lasts.
func (c *callHandler) put(ctx context.Context, x *request, job *queue.Job, body []byte, patience time.Duration) error {
	if err := guard.Turn(ctx, c.puts, patience); err != nil { // in a flood others come first, which is no fault of Redis
		return err
	}
	defer func() { <-c.puts }()
	return unavailable(c.opts.Guard.Outage.Reach(ctx, x.caller.Org, job.Pool, func(ctx context.Context) error {
		if x.key != nil {
			if err := x.key.Bind(ctx, job.ID, c.opts.Queue.Lifetime(job.Pool)); err != nil {
				return err
			}
		}
		return c.opts.Queue.Put(ctx, job, body)
	}))
}

// putTurn is how long the put of a call that nobody waits for waits for others.
const putTurn = 10 * time.Second

// maxPuts bounds the puts at once: a flood of calls that have to wait needs no
// connection to Redis each.
const maxPuts = 2

// wait queues a call whose caller stays connected, unless the wait that can be
// foreseen is longer than the caller's patience.
func (c *callHandler) wait(x *request, r *http.Request, plan *guard.Plan, wish preferences, why error) error {
	patience := c.patience(x, r, plan, wish).wait
	if foreseen(why) > x.left(patience) {
		return why
	}
	job := c.newJob(x, r, plan, queue.Interactive)
	job.Deadline = x.arrived.Add(patience + deadlineSlack)
	if refused, ok := errors.AsType[*guard.Refusal](why); ok {
		job.Limit = refused.Limit()
	}
	if err := c.put(r.Context(), x, job, plan.Request.Body, x.left(patience)); err != nil {
		return err
	}
	c.opts.Guard.CountRefusal(why, true)
	x.call, x.job = nil, job.ID
	if err := c.outlasted(r.Context(), job, x.left(patience)); err != nil {
		return err
	}
	return c.attend(x, r, job, wish)
}

// outlasted refuses a call at once whose turn at the provider's rate comes
// after its caller's patience. When the turn cannot be told, it waits.
func (c *callHandler) outlasted(ctx context.Context, job *queue.Job, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	select {
	case c.puts <- struct{}{}:
		defer func() { <-c.puts }()
	case <-ctx.Done():
		return nil
	}
	ahead, eta, err := c.opts.Queue.Position(ctx, job)
	if err != nil || eta <= patience {
		return nil
	}
	ended, err := c.opts.Queue.Expire(ctx, job.Org, job.ID)
	if err != nil || ended.State != queue.Expired {
		return nil // it has started after all, or is dropped by the queue
	}
	refusal := wire.RateLimited(
		fmt.Sprintf("There are about %d calls before this one, which is more than its caller can wait for", ahead), eta)
	tellPlace(refusal.Header, queue.Place{Ahead: ahead, ETA: eta, WaitingFor: "pool:" + job.Pool})
	return refusal
}

// attend lets a connected caller wait for a job and hands its answer on, once
// ServeHTTP is back where the stack is shallow: see exchange.rest.
func (c *callHandler) attend(x *request, r *http.Request, job *queue.Job, wish preferences) error {
	x.job, x.stays = job.ID, job.Class != queue.Interactive
	x.rest = func() error { return c.attendNow(x, r, job, wish) }
	return nil
}

func (c *callHandler) attendNow(x *request, r *http.Request, job *queue.Job, wish preferences) error {
	c.metrics.waiting.Inc()
	defer c.metrics.waiting.Dec()
	c.crowd.join()
	defer c.crowd.leave()
	v := c.arrive(x, r, job, wish)
	defer v.depart()
	err := v.run(r.Context())
	v.bill(r.Context())
	return err
}

// arrive opens the watch of a job for its caller. The queue has the request now:
// nobody has to keep it for the minutes that its caller waits.
//
//go:noinline // what it takes of the stack would be taken for those minutes
func (c *callHandler) arrive(x *request, r *http.Request, job *queue.Job, wish preferences) *waitingCaller {
	v := &waitingCaller{
		server: c.server, exchange: x, job: job, stream: x.plan.Request.Stream, comments: bearsComments(r.Header, wish),
		wish:  wish,
		print: c.repeats.print(x, r, x.plan), started: time.Now(),
	}
	patience := c.patience(x, r, x.plan, wish)
	x.asked = planRecordOf(x.plan)
	x.dropBody()
	x.plan = nil
	x.await(r.Context())
	v.room = c.opts.Spool.Room(job.Org, c.bodies.roomWait)
	_, v.span = tracing.Start(r.Context(), "wait for job")
	v.watch = c.opts.Queue.Watch(r.Context(), job)
	if wish.waits != "" {
		x.Header().Set("Preference-Applied", wish.waits)
		x.Header().Set("Vary", "Prefer")
	}
	v.waiting, v.stop = c.connections.untilDrained(r.Context())
	v.patience = x.arrived.Add(patience.wait)
	if patience.hold > 0 {
		v.hold = x.arrived.Add(patience.hold)
	}
	v.deadline = v.patience
	return v
}

// depart ends the wait.
func (v *waitingCaller) depart() {
	v.await(false)
	v.stop()
	v.watch.Close()
	v.room.Close()
	v.span.End()
	v.exchange.waited = time.Since(v.started)
}

// deadlineSlack lets the caller's own end of patience come before the job's,
// so that the caller is told by its proxy and not by the queue.
const deadlineSlack = 5 * time.Second

// foreseen is the wait a refusal announces; held money may come back sooner.
func foreseen(err error) time.Duration {
	var exceeded *guard.Refusal
	var noQuota *quota.BusyError
	var busy *guard.BusyError
	switch {
	case errors.As(err, &exceeded):
		if exceeded.Soon {
			return 0
		}
		return exceeded.Binding.Wait
	case errors.As(err, &noQuota):
		return noQuota.Wait
	case errors.As(err, &busy):
		return busy.RetryAfter
	default:
		return 0
	}
}
