package quota

import (
	"context"
	"slices"
	"time"
)

// keepLeases renews the leases of grants until ctx is done, and retries sooner after a
// failure, because calls whose leases ran out during an outage do not count against the
// concurrency until they are renewed.
func (q *Quota) keepLeases(ctx context.Context) {
	for {
		rest := q.opts.Lease / 3
		if !q.renewAll(ctx) {
			rest = min(rest, time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
	}
}

// Step does one round of what Run does repeatedly, for programs that drive a Quota by their
// own clock.
func (q *Quota) Step(ctx context.Context) {
	q.renewAll(ctx)
	q.forget(ctx)
}

// renewMost is how many leases one command renews.
const renewMost = 2000

// renewAll extends the leases of all open grants. It reports whether all were renewed.
func (q *Quota) renewAll(ctx context.Context) (all bool) {
	all = true
	open := make(map[string][]any)
	q.mu.Lock()
	for g := range q.grants {
		open[g.Pool] = append(open[g.Pool], g.ID)
	}
	q.mu.Unlock()
	for pool, ids := range open {
		for some := range slices.Chunk(ids, renewMost) {
			args := append([]any{q.lease}, some...)
			if _, err := q.eval(ctx, "grant_lease", renewScript, []string{Key(pool, "slots")}, args...); err != nil {
				q.log.WarnContext(ctx, "quota grants not renewed", "pool", pool, "err", err)
				all = false
			}
		}
	}
	return all
}

// Ended grants are removed from Redis together, every usedEvery, or sooner if those of this
// process take up a usedShare of the slots. In a pool with fewer than `plenty` slots each
// is returned immediately, because the next call of the same caller may need it.
const (
	plenty    = 1000
	usedShare = 200 // half a percent
	usedEvery = 100 * time.Millisecond
)

// keepForgetting removes ended grants from Redis until ctx is done.
func (q *Quota) keepForgetting(ctx context.Context) {
	q.forgets.Store(true)
	defer q.forgets.Store(false)
	tick := time.NewTicker(usedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			q.forget(ctx)
			return
		case <-q.forgetNow:
		case <-tick.C:
		}
		q.forget(ctx)
	}
}

// forget removes ended grants from Redis, with one command per pool. A grant that cannot be
// removed ends with its lease.
func (q *Quota) forget(ctx context.Context) {
	ctx = context.WithoutCancel(ctx) // also runs when Run ends; the client's timeouts bound it
	q.mu.Lock()
	used := q.used
	q.used = make(map[*pool][]any)
	q.mu.Unlock()
	for p, ids := range used {
		if err := q.rdb.ZRem(ctx, Key(p.ID, "slots"), ids...).Err(); err != nil {
			q.log.WarnContext(ctx, "ended grants not removed, their leases will expire", "pool", p.ID, "err", err)
		}
	}
}
