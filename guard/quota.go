package guard

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/quota"
)

// liveQuota is the quota of a call that does not wait in the queue.
type liveQuota struct {
	guard    *Guard
	lane     string
	priority quota.Priority
	asked    *quota.Prefetched // requested together with the hold; nil if not
	grant    *quota.Grant
}

// begin waits for a slot and begins a call. If the hold will probably succeed, it requests
// quota at the same time, so that both need one round trip to Redis. That quota is returned
// if the call does not begin with this plan.
func (q *liveQuota) begin(ctx context.Context, p *Plan, a *Attempt) (*Call, error) {
	g := q.guard
	if err := Turn(ctx, g.admission.holds, a.Patience); err != nil {
		return nil, err
	}
	defer func() { <-g.admission.holds }()
	who := g.admission.holders.of(p)
	if g.Grants.quota != nil && g.admission.holders.has(who) {
		q.asked = g.Grants.quota.Prefetch(ctx, q.request(p, a.ID))
	}
	c, err := g.admission.beginOr(ctx, p, a)
	held := err == nil && c.Plan == p && c.Without == ""
	g.admission.holders.note(who, held)
	if held || q.asked == nil {
		return c, err
	}
	if answered(c, err) { // the next attempt may need the slot
		q.asked.Drop(ctx)
	} else {
		q.asked.DropSoon(ctx)
	}
	q.asked = nil
	return c, err
}

// answered reports whether Redis answered the hold.
func answered(c *Call, err error) bool {
	if err == nil {
		return c.Without == ""
	}
	refused, _ := errors.AsType[*Refusal](err)
	_, braked := errors.AsType[*BrakedError](err)
	return refused != nil && !refused.Away || braked
}

func (q *liveQuota) request(p *Plan, id string) quota.Request {
	return quota.Request{
		Pool: p.Target.Pool, ID: id, Org: p.Caller.Org.ID, User: p.Caller.User,
		Model: p.Target.Model, Tokens: p.Quota, Lane: q.lane, Priority: q.priority,
	}
}

// Take takes quota, from this process's local share if the call was admitted without the
// store.
func (q *liveQuota) Take(ctx context.Context, c *Call) error {
	if q.guard.Grants.quota == nil {
		return nil
	}
	var err error
	if c.Without != "" {
		q.grant, err = q.guard.Grants.quota.TakeShare(c.Plan.Target.Pool, c.Plan.Quota)
		return err
	}
	ctx, taken := traceTake(ctx, c.Plan.Target.Pool, c.Plan.Quota)
	asked := q.asked
	q.asked = nil
	q.grant, err = q.guard.Grants.Take(ctx, c.Plan.Caller.Org, q.request(c.Plan, c.ID), asked)
	taken(err)
	return QuotaError(err)
}

func (q *liveQuota) Permit() error { return q.grant.Permit() }

func (q *liveQuota) Give(ctx context.Context, c *Call) {
	if q.grant == nil {
		return
	}
	q.grant.Counted = c.Counted()
	q.guard.Grants.Give(ctx, q.grant, c.Result.Outcome == Unsent)
}

// Grants takes and returns provider quota for requests.
type Grants struct {
	quota    *quota.Quota // nil: there is none
	outage   *Outage
	deadline time.Duration
	log      *slog.Logger
}

// takeMost exceeds the life of any context from outage.Health.Bound.
const takeMost = time.Minute

// Take takes provider quota for a request of an org. It waits for Redis no longer than a
// hold does; an org that may continue without the store then takes it from this process's
// share. asked is quota requested in advance, or nil. The error is a *quota.BusyError or
// comes from Redis.
func (gr *Grants) Take(
	ctx context.Context, o *Org, r quota.Request, asked *quota.Prefetched,
) (*quota.Grant, error) {
	var grant *quota.Grant
	var err error
	if asked.Came() {
		grant, err = asked.Wait(ctx, gr.deadline)
	} else {
		grant, err = gr.await(ctx, r, asked)
	}
	if err == nil || isBusy(err) || !o.WithoutStore() || capacity.IsFull(err) {
		return grant, err
	}
	return gr.quota.TakeShare(r.Pool, r.Tokens)
}

// await takes quota from Redis, within the time that Redis may take.
func (gr *Grants) await(ctx context.Context, r quota.Request, asked *quota.Prefetched) (*quota.Grant, error) {
	ctx, cancel := gr.outage.health.Bound(ctx, gr.deadline, r.Pool)
	defer cancel()
	if asked != nil {
		return asked.Wait(ctx, takeMost)
	}
	return gr.quota.Take(ctx, r)
}

// fullPause is when to retry after Redis was full: it frees memory as its contents expire.
const fullPause = 10 * time.Second

// QuotaError converts an error of Grants.Take into one for the caller. A *quota.BusyError
// is returned unchanged.
func QuotaError(err error) error {
	switch {
	case err == nil, isBusy(err):
		return err
	case capacity.IsFull(err):
		return wire.StoreFull(fullPause, err)
	}
	return wire.ServiceUnavailable("The provider's rate limit cannot be checked right now", time.Second, err)
}

func isBusy(err error) bool {
	_, busy := errors.AsType[*quota.BusyError](err)
	return busy
}

// Give ends a grant. unused means nothing was written upstream.
func (gr *Grants) Give(ctx context.Context, grant *quota.Grant, unused bool) {
	if err := gr.quota.Give(ctx, grant, unused); err != nil {
		gr.log.Warn("quota grant not returned, its lease will expire", "pool", grant.Pool, "err", err)
	}
}
