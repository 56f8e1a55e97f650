package proxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/wire"
)

// metered serves an endpoint that costs money: live when the call fits, from
// the queue when it does not, refused when it never can.
func (s *Server) metered(ep wire.Endpoint) func(*exchange, *http.Request, string) error {
	return func(x *exchange, r *http.Request, _ string) error {
		body, err := s.readBody(x, r)
		if err != nil {
			return err
		}
		x.arrived = time.Now()
		req, err := s.scan(x, ep, body)
		if err != nil {
			return err
		}
		plan, err := s.guard.PrepareKept(r.Context(), x.caller, req)
		if err != nil {
			return err
		}
		x.body.Shrink()
		x.plan = plan
		wish, err := parseWish(r.Header)
		if err != nil {
			return err
		}
		if wish.webhook, err = s.webhookOf(x.caller.Org.ID, r.Header, wish.async || req.Background); err != nil {
			return err
		}
		if plan.Caller.Org.RefuseOverLimit { // RFC 7240: a preference may be ignored
			wish.async = false
		}
		if req.Background {
			return s.onceInBackground(x, r, plan, wish.webhook)
		}
		return s.once(x, r, plan, wish)
	}
}

// serve carries a new call out.
func (s *Server) serve(x *exchange, r *http.Request, plan *guard.Plan, wish wish) error {
	if wish.async {
		return s.accept(x, r, plan, wish)
	}
	mayWait := !plan.Caller.Org.RefuseOverLimit && plan.Request.Form == nil
	if mayWait && s.flows.behind(plan) && !plan.Caller.Org.WithoutStore() {
		if err := s.guard.Check(r.Context(), plan); err != nil {
			return err
		}
		return s.wait(x, r, plan, wish, nil)
	}
	if x.key != nil {
		x.keep = &recording{room: x.server.opts.Spool.Memory, org: x.caller.Org.ID}
	}
	err := s.live(x, r, plan, x.left(s.patience(x, r, plan, wish).wait))
	if !waits(err) || !mayWait {
		return err
	}
	x.keep = nil // the job's output is kept anyway
	return s.wait(x, r, plan, wish, err)
}

// live holds, takes quota and forwards. The errors for which waits is true
// leave nothing charged, nothing sent and nothing written.
func (s *Server) live(x *exchange, r *http.Request, plan *guard.Plan, patience time.Duration) error {
	ctx, meant := r.Context(), plan
	call, plan, asked, err := s.begin(ctx, plan, x.id, patience)
	if err != nil {
		return err
	}
	defer call.End(ctx)
	x.call, x.plan = call, plan
	sent := func() {
		if meant.Request.Form == nil { // a form is read from there, to the end of its answer
			meant.Request.Body = nil
			x.body.Close()
		}
	}
	if err = s.forward(x, r, call, asked, sent); err == nil {
		if !plan.Request.Stream && call.Result.Outcome == guard.Completed {
			s.runs.add(x.caller.Org.ID, plan.Request.Model, call.Result.Took)
		}
		return nil
	}
	x.plan = meant // it may wait with that
	var busy *guard.BusyError
	if errors.As(err, &busy) {
		s.blockPool(ctx, plan.Target.Pool, busy.RetryAfter)
	}
	return err
}

// maxHolds bounds the holds under way: a burst queues here, where a caller's patience
// bounds its wait, and not at Redis, where every wait looks like an outage.
const maxHolds = 128

// turn waits for one of the places for requests to Redis under way.
func turn(ctx context.Context, places chan struct{}, patience time.Duration) error {
	select {
	case places <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return unavailable(context.Cause(ctx))
	case <-timer.C:
		return wire.Overloaded("Too many calls are queueing on this proxy right now", time.Second)
	}
}

// staleTries is how often a call asks for quota again because its grant grew
// stale before the request could be written: this process was too busy.
const staleTries = 3

// forward takes quota and sends the call within the life of the grant. Sent is called when
// the request's body is needed no more.
func (s *Server) forward(x *exchange, r *http.Request, call *guard.Call, asked *queue.Asked, sent func()) error {
	ctx := r.Context()
	for try := 1; ; try++ {
		grant, err := s.take(ctx, call, x.id, asked)
		if err != nil {
			return unavailable(err)
		}
		asked = nil
		err = call.Forward(ctx, x, guard.Forwarding{
			Header: r.Header, Query: r.URL.RawQuery, Fresh: grant.Fresh, Sent: sent,
		})
		grant.Used = call.Counted()
		s.giveBack(ctx, grant, call.Result.Outcome == guard.Unsent)
		if try == staleTries || !errors.Is(err, providers.ErrStale) {
			return err
		}
	}
}

// take asks for provider quota, unless that was asked for. A call whose org may go on
// without Redis then takes of this process's share.
func (s *Server) take(ctx context.Context, call *guard.Call, id string, asked *queue.Asked) (*queue.Grant, error) {
	plan := call.Plan
	if call.Without != "" {
		return s.queue.TakeShare(plan.Target.Pool, plan.Quota)
	}
	ctx, taken := traceTake(ctx, plan.Target.Pool, plan.Quota)
	grant, err := s.takeWithin(ctx, plan, id, asked)
	taken(err)
	if err == nil || !plan.Caller.Org.WithoutStore() || capacity.IsFull(err) {
		return grant, err
	}
	var busy *queue.BusyError
	if !errors.As(err, &busy) {
		return s.queue.TakeShare(plan.Target.Pool, plan.Quota)
	}
	return grant, err
}

// takeWithin waits for Redis no longer than a hold does.
func (s *Server) takeWithin(ctx context.Context, plan *guard.Plan, id string, asked *queue.Asked) (*queue.Grant, error) {
	ctx, cancel := s.guard.Bound(ctx, plan.Target.Pool, s.opts.StoreDeadline)
	defer cancel()
	if asked != nil {
		return asked.Wait(ctx, takeMost)
	}
	return s.queue.TakeCall(ctx, liveCall(plan, id))
}

// liveCall is what a plan asks of its pool's quota.
func liveCall(plan *guard.Plan, id string) queue.LiveCall {
	call := queue.LiveCall{
		Pool: plan.Target.Pool, ID: id, Flow: flow(plan.Caller), Model: plan.Target.Model, Tokens: plan.Quota,
	}
	if plan.Request.Form != nil { // its files are here, and no job has them
		call.Lane = queue.Lane(plan.Caller.Key, plan.Request.Model)
	}
	return call
}

// takeMost is longer than a context of guard.Bound lasts.
const takeMost = time.Minute

func flow(c guard.Caller) queue.Flow { return queue.Flow{Org: c.Org.ID, User: c.User} }

// giveBack returns the concurrency slot, and the quota when nothing was sent.
func (s *Server) giveBack(ctx context.Context, g *queue.Grant, unused bool) {
	if err := s.queue.Give(ctx, g, unused); err != nil {
		s.log.Warn("quota grant not given back; its lease frees it", "error", err)
	}
}

// defaultBlock is how long a pool rests after a 429 or 503 that does not say.
const defaultBlock = time.Second

func (s *Server) blockPool(ctx context.Context, pool string, d time.Duration) {
	if d <= 0 {
		d = defaultBlock
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.queue.Block(ctx, pool, d); err != nil {
		s.log.Warn("pool not blocked after the provider refused", "pool", pool, "error", err)
	}
}

// waits reports whether a call that failed so may still run from the queue.
func waits(err error) bool {
	if err == nil {
		return false
	}
	var exceeded *guard.Refusal
	if errors.As(err, &exceeded) {
		return !exceeded.Final() && !exceeded.Away
	}
	var noQuota *queue.BusyError
	if errors.As(err, &noQuota) {
		return !noQuota.Never && !noQuota.Share
	}
	var busy *guard.BusyError
	return errors.As(err, &busy) || errors.Is(err, providers.ErrStale)
}
