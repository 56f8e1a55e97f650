package queue

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// lookEvery is how often it is checked whether pools have work, and lookMost in how many
// of a cluster's quiet pools at a time: what an idle process costs Redis does not grow
// with its pools.
const (
	lookEvery = time.Second
	lookMost  = 4
)

// activity says whether there is anything in a pool to look after: waiting or running
// jobs, or ends to be announced. The zero value is not quiet.
type activity struct {
	stirred atomic.Int64 // how often something was put in, or heard of
	still   atomic.Int64 // stirred as it was before a look that found nothing, and one more
}

// wakeups call workers: to pools where there is work again, and to quiet ones in turn.
type wakeups struct {
	rdb      redis.UniversalClient
	log      *slog.Logger
	settings *settings
	turn     int // of look among quiet pools
}

// stir says that there may be something now.
func (a *activity) stir() { a.stirred.Add(1) }

// quiet reports whether the last look found nothing, and nothing was heard of since.
func (a *activity) quiet() bool { return a.still.Load() == a.stirred.Load()+1 }

// stir says that there may be something in a pool.
func (a *wakeups) stir(pool string) {
	if p := a.settings.pools()[pool]; p != nil {
		p.stir()
	}
}

// workKeys are the keys of which a pool has at least one while there is anything in it
// to look after.
func (p *pool) workKeys() []string {
	return []string{p.keys[2], p.keys[4], p.keys[8], p.keys[9], p.keys[11], p.keys[12], p.keys[13], p.keys[22]}
}

// look finds the pools that have become quiet, and those that have work that nobody was
// called for: the message was lost, or an older version put it.
func (a *wakeups) look(ctx context.Context) {
	var check, quiet []*pool
	pools := a.settings.pools()
	for _, id := range slices.Sorted(maps.Keys(pools)) {
		p := pools[id]
		if p.quiet() {
			quiet = append(quiet, p)
		} else {
			check = append(check, p)
		}
	}
	found, err := a.anyWork(ctx, quiet)
	if err == nil {
		err = a.lookIn(ctx, append(check, found...))
	}
	if err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "check for work failed, will retry", "err", err)
	}
}

// anyWork returns those of the quiet pools that are to be looked into. One command asks
// for all of them, except in a cluster, where they are on several nodes: there it is the
// next few, so that all have their turn.
func (a *wakeups) anyWork(ctx context.Context, quiet []*pool) ([]*pool, error) {
	if len(quiet) == 0 {
		return nil, nil
	}
	if _, cluster := a.rdb.(*redis.ClusterClient); cluster {
		n := min(len(quiet), lookMost)
		a.turn += n
		turn := make([]*pool, n)
		for i := range turn {
			turn[i] = quiet[(a.turn+i)%len(quiet)]
		}
		return turn, nil
	}
	var keys []string
	for _, p := range quiet {
		keys = append(keys, p.workKeys()...)
	}
	n, err := a.rdb.Exists(ctx, keys...).Result()
	if err != nil || n == 0 {
		return nil, err
	}
	return quiet, nil
}

// lookIn looks into each of some pools.
func (a *wakeups) lookIn(ctx context.Context, pools []*pool) error {
	if len(pools) == 0 {
		return nil
	}
	pipe := a.rdb.Pipeline()
	found, before := make([]*redis.IntCmd, len(pools)), make([]int64, len(pools))
	for i, p := range pools {
		found[i], before[i] = pipe.Exists(ctx, p.workKeys()...), p.stirred.Load()
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("queue: look: %w", err)
	}
	for i, p := range pools {
		switch {
		case found[i].Val() == 0:
			p.still.Store(before[i] + 1)
		case p.quiet():
			p.stir()
		}
	}
	return nil
}

// call tells the workers of a pool that there is more to do than is being done. Nobody
// misses one that fails: every worker looks once a second.
func (a *wakeups) call(ctx context.Context, p *pool) {
	if err := a.rdb.Publish(ctx, workChannel(p.ID), "").Err(); err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "workers not called, their next look finds the jobs", "pool", p.ID, "err", err)
	}
}

// Unpark wakes what limits have put aside of these orgs, in all pools: their limits are others
// now. What is refused again is put aside again.
func (q *Queue) Unpark(ctx context.Context, orgs map[string]bool) error {
	for _, p := range q.settings.pools() {
		subjects, err := q.rdb.ZRange(ctx, p.keys[4], 0, -1).Result()
		if err != nil {
			return fmt.Errorf("queue: parked: %w", err)
		}
		var due []redis.Z
		for _, subject := range subjects {
			if w := strings.Fields(subject); len(w) > 1 && w[0] != "p" && orgs[w[1]] { // kind org ...
				due = append(due, redis.Z{Score: 1, Member: subject})
			}
		}
		if len(due) == 0 {
			continue
		}
		if err := q.rdb.ZAddXX(ctx, p.keys[4], due...).Err(); err != nil {
			return fmt.Errorf("queue: unpark: %w", err)
		}
		q.wakeups.call(ctx, p)
	}
	return nil
}
