package guard

import (
	"context"
	"errors"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/quota"
)

// liveQuota is the quota of a call that does not wait in the queue.
type liveQuota struct {
	guard *Guard
	lane  string
	asked *quota.Prefetched // together with the hold; nil: not
	grant *quota.Grant
}

// begin begins a call when it is its turn to, and asks for its quota with the hold where
// that will probably be granted: both then wait for Redis once. What was asked for goes
// back when the call does not begin with that plan.
func (q *liveQuota) begin(ctx context.Context, p *Plan, a Attempt) (*Call, error) {
	g := q.guard
	if err := Turn(ctx, g.holds, a.Patience); err != nil {
		return nil, err
	}
	defer func() { <-g.holds }()
	who := g.holders.of(p)
	if g.quota != nil && g.holders.has(who) {
		q.asked = g.quota.Prefetch(ctx, q.request(p, a.ID))
	}
	c, err := g.beginOr(ctx, p, a)
	held := err == nil && c.Plan == p && c.Without == ""
	g.holders.note(who, held)
	if held || q.asked == nil {
		return c, err
	}
	if answered(c, err) { // what comes next may need the place
		q.asked.Drop(ctx)
	} else {
		q.asked.DropSoon(ctx)
	}
	q.asked = nil
	return c, err
}

// answered reports whether Redis answered to a hold.
func answered(c *Call, err error) bool {
	if err == nil {
		return c.Without == ""
	}
	var refused *Refusal
	return errors.As(err, &refused) && !refused.Away
}

func (q *liveQuota) request(p *Plan, id string) quota.Request {
	return quota.Request{
		Pool: p.Target.Pool, ID: id, Org: p.Caller.Org.ID, User: p.Caller.User,
		Model: p.Target.Model, Tokens: p.Quota, Lane: q.lane,
	}
}

// Take asks for quota, or takes it of this process's share when the call was admitted
// without the store.
func (q *liveQuota) Take(ctx context.Context, c *Call) error {
	if q.guard.quota == nil {
		return nil
	}
	var err error
	if c.Without != "" {
		q.grant, err = q.guard.quota.TakeShare(c.Target.Pool, c.Quota)
		return err
	}
	ctx, taken := traceTake(ctx, c.Target.Pool, c.Quota)
	asked := q.asked
	q.asked = nil
	q.grant, err = q.guard.takeQuota(ctx, c.Caller.Org, q.request(c.Plan, c.ID), asked)
	taken(err)
	return QuotaError(err)
}

func (q *liveQuota) Fresh() bool { return q.grant == nil || q.grant.Fresh() }

func (q *liveQuota) Give(ctx context.Context, c *Call) {
	if q.grant == nil {
		return
	}
	q.grant.Used = c.Counted()
	q.guard.GiveQuota(ctx, q.grant, c.Result.Outcome == Unsent)
}

// TakeQuota takes provider quota for a request of an org's. It waits for Redis no longer
// than a hold does. An org that may go on without the store then takes it of this
// process's share. The error is a *quota.BusyError or one of Redis.
func (g *Guard) TakeQuota(ctx context.Context, o *Org, r quota.Request) (*quota.Grant, error) {
	return g.takeQuota(ctx, o, r, nil)
}

// takeMost is longer than a context of health.bound lasts.
const takeMost = time.Minute

func (g *Guard) takeQuota(ctx context.Context, o *Org, r quota.Request, asked *quota.Prefetched) (*quota.Grant, error) {
	bounded, cancel := g.health.bound(ctx, g.deadline, r.Pool)
	defer cancel()
	var grant *quota.Grant
	var err error
	if asked != nil {
		grant, err = asked.Wait(bounded, takeMost)
	} else {
		grant, err = g.quota.Take(bounded, r)
	}
	var busy *quota.BusyError
	if err == nil || errors.As(err, &busy) || !o.WithoutStore() || capacity.IsFull(err) {
		return grant, err
	}
	return g.quota.TakeShare(r.Pool, r.Tokens)
}

// fullPause is when to come back to a Redis that is full: it frees memory as what it
// keeps expires.
const fullPause = 10 * time.Second

// QuotaError words an error of TakeQuota for the caller, but for a *quota.BusyError.
func QuotaError(err error) error {
	var busy *quota.BusyError
	switch {
	case err == nil, errors.As(err, &busy):
		return err
	case capacity.IsFull(err):
		return wire.StoreFull(fullPause, err)
	}
	return wire.ServiceUnavailable("The provider's quota cannot be read at the moment", time.Second, err)
}

// GiveQuota ends a grant; unused: nothing was written upstream.
func (g *Guard) GiveQuota(ctx context.Context, grant *quota.Grant, unused bool) {
	if err := g.quota.Give(ctx, grant, unused); err != nil {
		g.log.Warn("quota grant not given back; its lease frees it", "pool", grant.Pool, "err", err)
	}
}
