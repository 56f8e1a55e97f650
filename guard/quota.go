package guard

import (
	"context"
	"errors"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/quota"
	"github.com/llmguard/llmguard/wire"
)

// liveQuota is the quota of a call that does not wait in the queue.
type liveQuota struct {
	guard *Guard
	lane  string
	grant *quota.Grant
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
	q.grant, err = q.guard.TakeQuota(ctx, c.Caller.Org, quota.Request{
		Pool: c.Target.Pool, ID: c.ID, Org: c.Caller.Org.ID, User: c.Caller.User,
		Model: c.Target.Model, Tokens: c.Quota, Lane: q.lane,
	})
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
	bounded, cancel := g.health.bound(ctx, g.deadline, r.Pool)
	defer cancel()
	grant, err := g.quota.Take(bounded, r)
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
	return wire.ServiceUnavailable("The provider's quota cannot be asked for at the moment", time.Second, err)
}

// GiveQuota ends a grant; unused: nothing was written upstream.
func (g *Guard) GiveQuota(ctx context.Context, grant *quota.Grant, unused bool) {
	if err := g.quota.Give(ctx, grant, unused); err != nil {
		g.log.Warn("quota grant not given back; its lease frees it", "pool", grant.Pool, "err", err)
	}
}
