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

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/tasks"
)

// lookEvery is the interval between checks for work. In a cluster each check covers at most
// lookMost quiet pools, so that the load of an idle process on Redis does not grow with the
// number of pools.
const (
	lookEvery = time.Second
	lookMost  = 4
)

// activity tracks whether a pool needs attention: waiting jobs, running jobs, or ends to
// announce. The zero value is not quiet.
type activity struct {
	stirred atomic.Int64 // number of puts and notifications so far
	still   atomic.Int64 // 1 + the value of stirred before the last check that found nothing
}

// wakeups notifies workers of pools that have work, and checks the quiet pools in turn.
type wakeups struct {
	rdb      redisconn.DB
	log      *slog.Logger
	settings *settings
	turn     int // position in the rotation over quiet pools
}

// stir marks the pool as possibly having work.
func (a *activity) stir() { a.stirred.Add(1) }

// quiet reports whether the last check found nothing and no notification arrived since.
func (a *activity) quiet() bool { return a.still.Load() == a.stirred.Load()+1 }

// stir marks a pool as possibly having work.
func (a *wakeups) stir(pool string) {
	if p := a.settings.pools()[pool]; p != nil {
		p.stir()
	}
}

// workKeys returns the keys of which at least one exists while the pool needs attention.
func (p *pool) workKeys() []string {
	return []string{
		p.keys[2], p.keys[4], p.keys[8], p.keys[9], p.keys[11], p.keys[12], p.keys[13], p.keys[22],
		tasks.Key(p.ID, "pending"), tasks.Key(p.ID, "active"), tasks.Key(p.ID, "retry"), tasks.Key(p.ID, "scheduled"),
	}
}

// look marks pools that have become quiet, and wakes pools whose work was never announced
// because the message was lost or an older version put the job.
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

// anyWork returns the quiet pools to look into. One command covers all of them, except in a
// cluster, where they are spread over several nodes: there it returns the next few, so that
// every pool gets its turn.
func (a *wakeups) anyWork(ctx context.Context, quiet []*pool) ([]*pool, error) {
	if len(quiet) == 0 {
		return nil, nil
	}
	if a.rdb.Cluster() {
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

// lookIn checks each of the given pools for work.
func (a *wakeups) lookIn(ctx context.Context, pools []*pool) error {
	if len(pools) == 0 {
		return nil
	}
	pipe := a.rdb.Pipeline()
	found, before := make([]redisconn.Cmd[int64], len(pools)), make([]int64, len(pools))
	for i, p := range pools {
		found[i], before[i] = pipe.Exists(ctx, p.workKeys()...), p.stirred.Load()
	}
	if err := pipe.Exec(ctx); err != nil {
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

// call notifies the workers of a pool that there is more work. A lost notification is
// harmless: every worker also checks once a second.
func (a *wakeups) call(ctx context.Context, p *pool) {
	if err := a.rdb.Publish(ctx, workChannel(p.ID), "").Err(); err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "workers not notified, their next poll finds the jobs", "pool", p.ID, "err", err)
	}
}

// Unpark wakes everything that is parked for the given orgs, nil for all, in all pools, and their jobs that a
// brake refused, because their limits, what they have used or their brakes have changed. Jobs that are
// refused again wait again.
func (q *Queue) Unpark(ctx context.Context, orgs map[string]bool) error {
	for _, p := range q.settings.pools() {
		subjects, err := q.rdb.ZRange(ctx, p.keys[4], 0, -1).Result()
		if err != nil {
			return fmt.Errorf("queue: parked: %w", err)
		}
		var due []redisconn.Z
		for _, subject := range subjects {
			w := strings.Fields(subject) // kind org ...
			if orgs == nil || len(w) > 1 && w[0] != "p" && orgs[w[1]] {
				due = append(due, redisconn.Z{Score: 1, Member: subject})
			}
		}
		if len(due) > 0 {
			if err := q.rdb.ZAddXX(ctx, p.keys[4], due...).Err(); err != nil {
				return fmt.Errorf("queue: unpark: %w", err)
			}
		}
		woken, err := q.wakeups.endNaps(ctx, p, orgs)
		if err != nil {
			return err
		}
		if len(due) > 0 || woken {
			q.wakeups.call(ctx, p)
		}
	}
	return nil
}

// maxNaps bounds the jobs that one Unpark wakes in a pool. Others wake on their own, within maxBrakeRest.
const maxNaps = 10_000

// endNaps makes the next attempts of jobs that a brake refused due, and reports whether there were any. Jobs
// that rest because their provider failed keep their pause. See nap_entry in lua/rings.lua.
func (a *wakeups) endNaps(ctx context.Context, p *pool, orgs map[string]bool) (bool, error) {
	fair, shut := p.keys[6], p.keys[20]
	entries, err := a.rdb.ZRangeByLex(ctx, shut, redisconn.Between{Min: "[z ", Max: "(z!", Count: maxNaps}).Result()
	if err != nil {
		return false, fmt.Errorf("queue: naps: %w", err)
	}
	tills := make([]redisconn.Text, len(entries))
	read := a.rdb.Pipeline()
	for i, entry := range entries {
		if w := strings.Fields(entry); len(w) == 9 && (orgs == nil || orgs[w[3]]) { // z time class + member
			tills[i] = read.HGet(ctx, jobKey(p.ID, w[7]), "braked")
		}
	}
	if err := read.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return false, fmt.Errorf("queue: naps: %w", err)
	}
	var old []any
	var due []string
	for i, entry := range entries {
		w := strings.Fields(entry)
		if tills[i] == nil || strings.TrimLeft(w[1], "0") != tills[i].Val() {
			continue
		}
		w[1] = strings.Repeat("0", len(w[1]))
		old, due = append(old, entry), append(due, strings.Join(w, " "))
	}
	if len(old) == 0 {
		return false, nil
	}
	write := a.rdb.TxPipeline()
	write.ZRem(ctx, shut, old...)
	for _, entry := range due {
		write.ZAdd(ctx, shut, redisconn.Z{Member: entry})
	}
	write.HSet(ctx, fair, "nap", 0)
	if err := write.Exec(ctx); err != nil {
		return false, fmt.Errorf("queue: naps: %w", err)
	}
	return true, nil
}
