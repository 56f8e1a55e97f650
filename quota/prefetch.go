package quota

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// Prefetched is a Take that has been sent ahead, or will be with the next flight. Whoever has it calls
// Wait or Drop. It is for one goroutine.
type Prefetched struct {
	q       *Quota
	pool    *pool
	request Request
	grant   *Grant
	reply   *redisconn.Prefetch
}

// Prefetch is the beginning of a Take: it leaves together with what this process next asks
// Redis, at the latest when it is waited for, or never if ctx has ended. It is nil where
// that is not possible, such as on a cluster: Take does it then.
func (q *Quota) Prefetch(ctx context.Context, r Request) *Prefetched {
	p, err := q.pool(r.Pool)
	if q.line == nil || err != nil {
		return nil
	}
	// Another id than that of a Take of the same call: what is dropped late is not that's.
	r.ID += "+"
	g := newGrant(p, r)
	reply := q.line.Prefetch(ctx, takeScript.Hash(), p.takes, q.takeArgs(p, g, r)...)
	if reply == nil {
		return nil
	}
	return &Prefetched{q: q, pool: p, request: r, grant: g, reply: reply}
}

// Wait is the rest of the Take, for which it waits no longer than ctx and most. With an
// error that is not *BusyError what may have been booked is given back soon, as by Drop.
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
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		return a.q.Take(ctx, a.request)
	case err != nil:
		if lost(err) {
			a.DropSoon(ctx) // whoever waits has waited long enough
		}
		return nil, a.q.failed(a.pool, err)
	}
	return a.q.granted(a.pool, a.grant, reply)
}

// Drop gives back what was booked or may have been, for which it waits when Redis has
// answered already, and else lets it happen when that has. What Redis does not take back
// ends by its lease. Drop of nil does nothing.
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

// DropSoon is Drop for those who cannot wait for it: Run does when it ends.
func (a *Prefetched) DropSoon(ctx context.Context) {
	a.q.returns.Go(func() { a.Drop(ctx) })
}

// replyTimeout is longer than the client waits for a reply that never comes.
const replyTimeout = time.Minute

// giveBack waits for the reply.
func (a *Prefetched) giveBack(ctx context.Context) {
	cmd, err := a.reply.Wait(ctx, replyTimeout)
	if err != nil {
		return // it never left, or even the client's timeouts have not ended the wait
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
		a.q.log.WarnContext(ctx, "quota that was requested ahead is not given back; its lease frees it", "pool", a.pool.ID,
			"err", err)
	}
}
