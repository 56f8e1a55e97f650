package quota

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// Prefetched is a Take that has been sent in advance, or will be with the next pipeline.
// The caller must call Wait or Drop, from one goroutine.
type Prefetched struct {
	q       *Quota
	pool    *pool
	request Request
	grant   *Grant
	reply   *redisconn.Prefetch
}

// Prefetch starts a Take. It is sent together with this process's next request to Redis, at
// the latest when Wait is called, or never if ctx has ended. Prefetch returns nil if that
// is not possible, such as on a cluster; the caller must then use Take.
func (q *Quota) Prefetch(ctx context.Context, r Request) *Prefetched {
	p, err := q.pool(r.Pool)
	if q.line == nil || err != nil {
		return nil
	}
	// Use another id than a Take of the same call, so that a late Drop does not release
	// that grant.
	r.ID += "+"
	g := newGrant(p, r)
	reply := q.line.Prefetch(ctx, takeScript.Hash(), p.takes, q.takeArgs(p, g, r)...)
	if reply == nil {
		return nil
	}
	return &Prefetched{q: q, pool: p, request: r, grant: g, reply: reply}
}

// Came reports whether Wait would return immediately; for nil false.
func (a *Prefetched) Came() bool {
	return a != nil && a.reply.Came() && !redisconn.NoScript(a.reply.Err())
}

// Wait completes the Take. It waits until ctx ends, and at most for `most`. On an error
// other than *BusyError, what may have been booked is returned soon, as by Drop.
func (a *Prefetched) Wait(ctx context.Context, most time.Duration) (*Grant, error) {
	if err := ctx.Err(); err != nil {
		a.DropSoon(ctx)
		return nil, a.q.failed(a.pool, err)
	}
	cmd, err := a.reply.Wait(ctx, most)
	if err != nil {
		a.DropSoon(ctx)
		return nil, a.q.failed(a.pool, err)
	}
	reply, err := cmd.Text()
	switch {
	case err == nil:
	case redisconn.NoScript(err):
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		return a.q.Take(ctx, a.request)
	default:
		if lost(err) {
			a.DropSoon(ctx) // do not wait any longer
		}
		return nil, a.q.failed(a.pool, err)
	}
	return a.q.granted(a.pool, a.grant, reply)
}

// Drop returns what was or may have been booked. If Redis has already answered, Drop waits
// for the return; otherwise it happens after the answer. What Redis does not take back ends
// with its lease. Drop of nil does nothing.
func (a *Prefetched) Drop(ctx context.Context) {
	if a == nil || a.reply.Cancel() {
		return
	}
	ctx = context.WithoutCancel(ctx)
	if a.reply.Came() {
		a.giveBack(ctx)
		return
	}
	a.q.returns.Go(func() { a.giveBack(ctx) })
}

// DropSoon is Drop without waiting. Run waits for it when it ends.
func (a *Prefetched) DropSoon(ctx context.Context) {
	a.q.returns.Go(func() { a.Drop(ctx) })
}

// replyTimeout exceeds the client's own wait for a reply that never comes.
const replyTimeout = time.Minute

// giveBack waits for the reply and returns the grant.
func (a *Prefetched) giveBack(ctx context.Context) {
	cmd, err := a.reply.Wait(ctx, replyTimeout)
	if err != nil {
		return // it was never sent, or even the client's timeouts have not ended the wait
	}
	reply, err := cmd.Text()
	if err == nil {
		w, bad := words("take", reply, 2)
		if bad != nil || w[0] != "ok" {
			return
		}
		a.grant.At = w[1]
	} else if lost(err) {
		a.grant.At = a.q.lost()
	} else {
		return
	}
	a.q.metrics.grants.WithLabelValues(a.pool.ID, "dropped").Inc()
	if err := a.q.Give(ctx, a.grant, true); err != nil {
		a.q.log.WarnContext(ctx, "prefetched quota not returned, its lease will expire", "pool", a.pool.ID,
			"err", err)
	}
}
