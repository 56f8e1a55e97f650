package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

// newJob creates the record of a waiting call. Its body is stored separately.
func (c *callHandler) newJob(x *request, r *http.Request, plan *guard.Plan, class queue.Class) *queue.Job {
	return &queue.Job{
		ID: c.opts.Queue.NewID(plan.Target.Pool), Pool: plan.Target.Pool, CallID: x.id,
		Org: x.caller.Org.ID, User: x.caller.User, Key: x.caller.Key, Class: class,
		Born: x.caller.Born, UserBorn: x.caller.UserBorn,
		Endpoint: plan.Request.Endpoint, Model: plan.Request.Model, Stream: plan.Request.Stream,
		Tokens: plan.Quota, Cost: plan.First.Cost, Held: plan.First.Tokens, Answer: queue.AnswerBytes(plan),
		Header: kept(r.Header, plan), Query: r.URL.RawQuery, IP: x.caller.IP, Labels: plan.Caller.Labels,
		Run:   plan.Caller.Run,
		Trace: tracing.Context(r.Context()),
	}
}

// kept returns the request headers that are stored with a job: those that its provider is sent, and those that say
// how it is answered.
func kept(h http.Header, plan *guard.Plan) http.Header {
	out := http.Header{}
	for name, v := range h {
		if name == guard.HeaderCache || name == wire.HeaderClaudeSession || plan.Target.Provider.Dialect.Forwards(name) {
			out[name] = v
		}
	}
	return out
}

// accept creates a job for a call with Prefer: respond-async. With wait=N it is answered like any
// call if it is done by then.
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
	wish.order(job)
	if err := c.put(r.Context(), x, job, plan.Request.Body, putTurn); err != nil {
		return err
	}
	x.stays = true
	return c.defer202(x, job, wish)
}

// defer202 waits as long as the caller requested, then answers with the job.
func (c *callHandler) defer202(x *request, job *queue.Job, wish preferences) error {
	if wish.patience >= time.Second {
		return c.attend(x, x.request, job, wish)
	}
	return c.accepted(x, job, wish)
}

func (c *callHandler) accepted(x *request, job *queue.Job, wish preferences) error {
	x.job, x.stays = job.ID, true
	h := x.Header()
	h.Set("Location", "/v1/jobs/"+job.ID)
	h.Set("Preference-Applied", strings.TrimSuffix("respond-async, "+wish.waits, ", "))
	h.Add("Vary", "Prefer")
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

// put queues a job, after binding the request's key to it. Under high load the caller waits for its
// turn as long as its patience lasts.
func (c *callHandler) put(ctx context.Context, x *request, job *queue.Job, body []byte, patience time.Duration) error {
	if err := guard.Turn(ctx, c.puts, patience); err != nil { // others come first, which is not a failure of Redis
		return err
	}
	defer func() { <-c.puts }()
	tags := []string{x.caller.Org.ID, job.Pool}
	return unavailable(c.opts.Guard.Outage.Reach(ctx, x.caller.Org, tags, func(ctx context.Context) error {
		if x.key != nil {
			if err := x.key.Bind(ctx, job.ID, c.opts.Queue.Lifetime(job.Pool)); err != nil {
				return err
			}
		}
		return c.opts.Queue.Put(ctx, job, body)
	}))
}

// putTurn is the shortest time that a call waits for its turn at Redis, also if its caller's patience is
// shorter: what has come that far is told its place.
const putTurn = 10 * time.Second

// maxPuts bounds concurrent puts: many calls that have to wait do not need a connection to Redis
// each.
const maxPuts = 2

// wait queues a call whose caller stays connected, unless the expected wait exceeds the caller's
// patience.
func (c *callHandler) wait(x *request, r *http.Request, plan *guard.Plan, wish preferences, why error) error {
	patience := c.patience(x, r, plan, wish).wait
	if foreseen(why) > max(x.left(patience), 0) {
		return why
	}
	job := c.newJob(x, r, plan, queue.Interactive)
	turn := max(x.left(patience), putTurn) // so that a caller whose patience is short gets a place, too
	job.Deadline = x.arrived.Add(max(patience, time.Since(x.arrived)+turn) + deadlineSlack)
	wish.order(job)
	waits := guard.Refusing(why, x.caller, plan)
	if why == nil { // other calls of the user wait
		waits.Cause = plan.PoolCause()
	}
	waits.At = time.Now()
	job.Cause, job.WaitCause, job.WaitAt = waits.Cause, waits.Cause, waits.At
	if err := c.put(r.Context(), x, job, plan.Request.Body, turn); err != nil {
		return err
	}
	x.waits(job, waits)
	x.noteLimits(why)
	x.call, x.job = nil, job.ID
	if err := c.outlasted(r.Context(), x, job, max(x.left(patience), 0)); err != nil {
		return err
	}
	return c.attend(x, r, job, wish)
}

// outlasted refuses a call immediately if its turn comes after its caller's patience, also if it comes
// earlier than expected by as much as such estimates are off. If the turn is unknown, the call waits.
func (c *callHandler) outlasted(ctx context.Context, x *request, job *queue.Job, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	at, err := c.opts.Queue.Expect(ctx, c.opts.Guard.Rooms(), job)
	if err != nil || at.ETA-max(at.ETA/5, 5*time.Second) <= patience {
		return nil
	}
	ended, err := c.opts.Queue.Expire(ctx, job.Org, job.ID)
	if err != nil || ended.State != queue.Expired {
		return nil // it has started after all, or it has expired and the reply was lost: see finish
	}
	what := "its turn"
	if at.Cause.Name() != "" {
		what = budget.Cause(at.Cause.Public()).Title()
	}
	text := fmt.Sprintf("This call waits for %s (calls ahead: about %d), and cannot start before its caller's timeout",
		what, at.Ahead)
	refusal := wire.RateLimited(text, at.ETA)
	x.outlast(job, at)
	tellPlace(refusal.Header, at)
	return refusal
}

// attend lets a connected caller wait for a job and forwards its answer.
func (c *callHandler) attend(x *request, r *http.Request, job *queue.Job, wish preferences) error {
	x.job, x.stays = job.ID, job.Class != queue.Interactive
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

// arrive opens the watch of a job for its caller. The queue has the request now, so it need not
// stay in memory for the minutes that its caller waits.
func (c *callHandler) arrive(x *request, r *http.Request, job *queue.Job, wish preferences) *waitingCaller {
	v := &waitingCaller{
		calls: c, exchange: x, job: job, stream: x.plan.Request.Stream, comments: bearsComments(r.Header, wish),
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
		x.Header().Add("Vary", "Prefer")
	}
	v.wait(r.Context())
	v.patience = x.arrived.Add(patience.wait)
	if patience.hold > 0 {
		v.hold = x.arrived.Add(patience.hold)
	}
	v.deadline = v.patience
	return v
}

func (v *waitingCaller) depart() {
	v.await(false)
	v.stop()
	v.watch.Close()
	v.room.Close()
	v.span.End()
	v.exchange.waited = time.Since(v.started)
}

// deadlineSlack lets the caller's patience end before the job's deadline, so that the proxy answers
// the caller, not the queue.
const deadlineSlack = 5 * time.Second

// foreseen returns the wait that a refusal announces; held money may be returned sooner.
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

// The headers in which a waiting call reports its place, if headers can still be sent.
const (
	headerAhead      = "X-Llmguard-Queue-Ahead" // number of jobs ahead of it
	headerETA        = "X-Llmguard-Queue-Eta"   // until it may run; a Go duration
	headerWaitingFor = "X-Llmguard-Waiting-For" // what it waits for: see queue.Place
)

func (c *callHandler) placeOf(ctx context.Context, j *queue.Job) (queue.Place, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return c.opts.Queue.Place(ctx, c.opts.Guard.Rooms(), j)
}

func tellPlace(h http.Header, at queue.Place) {
	if at.Cause == "" { // it is not waiting
		return
	}
	h.Set(headerAhead, strconv.Itoa(at.Ahead))
	if at.ETA >= 0 {
		h.Set(headerETA, (time.Duration(wholeSeconds(at.ETA)) * time.Second).String())
	}
	h.Set(headerWaitingFor, at.Cause.Public())
}

// comment formats the place as a line that readers of event streams ignore.
func comment(at queue.Place) string {
	eta := "unknown"
	if at.ETA >= 0 {
		eta = strconv.FormatInt(wholeSeconds(at.ETA), 10)
	}
	return fmt.Sprintf(": waiting position=%d eta=%s for=%s\n", at.Ahead+1, eta, at.Cause.Public())
}

// maxLooks bounds the concurrent lookups of callers' places. While thousands wait, the others get
// the blank line that keeps their connections alive.
const maxLooks = 4

// look returns the place of a waiting caller's job; false if it is not waiting, or if too many
// lookups are in progress.
func (v *waitingCaller) look(ctx context.Context) (queue.Place, bool) {
	c := v.calls
	select {
	case c.looks <- struct{}{}:
		defer func() { <-c.looks }()
	default:
		return queue.Place{}, false
	}
	at, err := c.placeOf(ctx, v.job)
	return at, err == nil && at.Cause != ""
}

// bearsComments reports whether a caller's client is known to skip comments in an event stream:
// OpenAI's own libraries, and callers that request them. Other clients may take a comment for part
// of a subsequent error.
func bearsComments(h http.Header, w preferences) bool {
	switch h.Get("X-Stainless-Lang") {
	case "js", "python", "go":
		return true
	}
	return w.progress
}

// waitingFlows counts the callers that wait here for their jobs to start. No call may overtake the
// waiting callers of its own flow. If some have the same key and model, a new call would wait for
// the same thing, so it need not first request money and quota that others could use meanwhile. It
// is safe for concurrent use.
type waitingFlows struct {
	mu    sync.Mutex
	count map[waitingLane]int
}

type waitingLane struct {
	queue.Flow
	pool, key, model string
}

func (w *waitingFlows) add(f waitingLane, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count[f] += n
	if w.count[f] == 0 {
		delete(w.count, f)
	}
}

// behind reports whether a call has to wait behind others of its flow.
func (w *waitingFlows) behind(p *guard.Plan) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count[waitingLane{
		queue.Flow{Org: p.Caller.Org.ID, User: p.Caller.User},
		p.Target.Pool, p.Caller.Key,
		p.Request.Model,
	}] > 0
}

// await counts a caller that waits, or that no longer does because its job runs.
func (v *waitingCaller) await(waits bool) {
	if waits == v.counted {
		return
	}
	v.counted = waits
	n := -1
	if waits {
		n = 1
	}
	j := v.job
	v.calls.flows.add(waitingLane{queue.Flow{Org: j.Org, User: j.User}, j.Pool, j.Key, j.Model}, n)
}
