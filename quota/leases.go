package quota

import (
	"context"
	"time"
)

// keepLeases renews the leases of grants until ctx is done, and sooner where that failed:
// calls whose leases ran out during an outage do not count against the concurrency until
// then.
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

// Step is one round of what Run does again and again, for those who drive a Quota by a
// clock of their own.
func (q *Quota) Step(ctx context.Context) {
	q.renewAll(ctx)
	q.forget(ctx)
}

// renewMost is how many leases a command renews.
const renewMost = 2000

// renewAll extends the leases of all open grants. It reports whether all are renewed.
func (q *Quota) renewAll(ctx context.Context) (all bool) {
	all = true
	open := make(map[string][]any)
	q.mu.Lock()
	for g := range q.grants {
		open[g.Pool] = append(open[g.Pool], g.ID)
	}
	q.mu.Unlock()
	for pool, ids := range open {
		for len(ids) > 0 {
			n := min(len(ids), renewMost)
			args := append([]any{q.lease}, ids[:n]...)
			if _, err := q.eval(ctx, "grant_lease", renewScript, []string{Key(pool, "slots")}, args...); err != nil {
				q.log.WarnContext(ctx, "renew grants", "pool", pool, "err", err)
				all = false
			}
			ids = ids[n:]
		}
	}
	return all
}

// Ended grants are taken off the books together, every usedEvery, and sooner when
// those of this process take up a usedShare of the places. Where places are few each
// comes back at once: the next call of the same caller may need it.
const (
	plenty    = 1000
	usedShare = 200 // half a percent
	usedEvery = 100 * time.Millisecond
)

// keepForgetting takes ended grants off the books until ctx is done.
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

// forget takes ended grants off the books, one command a pool. What cannot
// be written ends by its lease.
func (q *Quota) forget(ctx context.Context) {
	ctx = context.WithoutCancel(ctx) // at the end of Run too; the client's timeouts bound it
	q.mu.Lock()
	used := q.used
	q.used = make(map[*pool][]any)
	q.mu.Unlock()
	for p, ids := range used {
		if err := q.rdb.ZRem(ctx, Key(p.ID, "slots"), ids...).Err(); err != nil {
			q.log.WarnContext(ctx, "forget ended grants", "pool", p.ID, "err", err)
		}
	}
}
