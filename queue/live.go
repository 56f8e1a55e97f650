package queue

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// grantLife is how long a grant may wait before its request is written
// upstream. The ring in quota.lua covers it: a constant of the proof that no
// sliding minute exceeds the quota.
const grantLife = 500 * time.Millisecond

// grantMoves is the age at which what was booked for a job moves to the present when the job
// starts: making it ready took so long that sending it may take what is left.
const grantMoves = grantLife / 5

// ageless is the age of a grant of a pool without a quota, in replies of scripts.
const ageless = "-1"

// Flow is who waits together: a user in an org.
type Flow struct{ Org, User string }

// Grant is the leave to write one request upstream, within 500 ms.
type Grant struct {
	// Pool and ID (the call id) name the grant; Tokens is what it booked.
	Pool, ID string
	Tokens   int64
	// Used is how many tokens the provider counted, to be set before Give where
	// it counts actual ones; negative when not known.
	Used int64

	call  LiveCall
	at    string // the pool's time of the grant, us
	born  time.Time
	free  bool // the pool has no quota: it does not grow stale
	ended bool
	share bool // of this process's share; Redis knows nothing of it
}

// Fresh reports whether the request may still be written upstream. A stale
// grant is given back unused.
func (g *Grant) Fresh() bool { return g.free || time.Since(g.born) < grantLife }

// BusyError refuses a live call: the quota has no room for it now.
type BusyError struct {
	// Wait is a hint when to ask again; 0 when Never.
	Wait time.Duration
	// Reason is one of blocked, rpm, tpm, concurrency, flow (its own flow has
	// waiting jobs, which it may not overtake) and never.
	Reason string
	// Never tells that the call alone exceeds the pool's quota.
	Never bool
	// Limit is the pool's tokens per minute when Never, configured or named by the
	// provider, else 0.
	Limit int64
	// Share tells that Redis is away and this process's share is used up: there
	// is no queue to wait in.
	Share bool
}

func (e *BusyError) Error() string {
	if e.Never {
		return "queue: the call alone exceeds the provider quota of a minute"
	}
	return fmt.Sprintf("queue: provider quota busy (%s), ask again in %s", e.Reason, e.Wait)
}

// LiveCall is what asks for quota without waiting in the queue.
type LiveCall struct {
	Pool, ID string
	Flow     Flow
	// Model is as the provider knows it: a quota that the provider has named for
	// another model does not make this call too large. "" is any.
	Model  string
	Tokens int64
	// Lane is what Lane returns of the key and model of a call that cannot wait in
	// the queue, "" for one that can. The latter goes behind all waiting jobs of its
	// flow, the former only behind those that may run or are of its lane.
	Lane string
}

// Take is TakeCall for a call of any model.
func (q *Queue) Take(ctx context.Context, poolID, callID string, flow Flow, tokens int64) (*Grant, error) {
	return q.TakeCall(ctx, LiveCall{Pool: poolID, ID: callID, Flow: flow, Tokens: tokens})
}

// TakeCall asks for one request of so many tokens from the pool's quota for a live
// call. It is idempotent on its ID. The error is a *BusyError or one of Redis.
// The grant is open, and renewed by Run, until Give.
func (q *Queue) TakeCall(ctx context.Context, call LiveCall) (*Grant, error) {
	p, err := q.pool(call.Pool)
	if err != nil {
		return nil, err
	}
	g := q.asked(p, call)
	reply, err := takeScript.Run(ctx, q.opts.Scripts, p.takes, q.takeArgs(p, g)...).Text()
	return q.granted(p, g, reply, err)
}

// asked is the grant that is asked for now.
func (q *Queue) asked(p *pool, call LiveCall) *Grant {
	return &Grant{Pool: p.ID, ID: call.ID, Tokens: max(call.Tokens, 0), Used: -1, born: time.Now(), call: call}
}

// takeArgs is the ARGV that lua/take.lua lists: pointers, where an interface of the
// value would be another piece of memory.
func (q *Queue) takeArgs(p *pool, g *Grant) []any {
	args := make([]any, 0, 8+len(p.limits))
	args = append(args, q.clock, &g.ID, &g.call.Flow.Org, &g.call.Flow.User, &g.Tokens, q.lease)
	args = append(args, p.limits...)
	return append(args, &g.call.Model, &g.call.Lane)
}

// granted reads the reply of the take script.
func (q *Queue) granted(p *pool, g *Grant, reply string, err error) (*Grant, error) {
	if err != nil {
		q.metrics.grants.WithLabelValues(p.ID, "error").Inc()
		return nil, fmt.Errorf("queue: take: %w", err)
	}
	w, err := words("take", reply, 2)
	if err != nil {
		return nil, err
	}
	if w[0] == "ok" {
		q.metrics.grants.WithLabelValues(p.ID, "granted").Inc()
		g.at = w[1]
		if len(w) > 2 { // replayed: it has lived for as long
			g.free = w[2] == ageless
			g.born = g.born.Add(-max(micros(w[2]), 0))
		}
		q.mu.Lock()
		q.grants[g] = struct{}{}
		q.mu.Unlock()
		return g, nil
	}
	q.metrics.grants.WithLabelValues(p.ID, w[2]).Inc()
	if w[2] == "never" && len(w) > 3 {
		limit, _ := strconv.ParseInt(w[3], 10, 64)
		return nil, &BusyError{Reason: w[2], Never: true, Limit: limit}
	}
	return nil, &BusyError{Reason: w[2], Wait: micros(w[1])}
}

// giveTimeout bounds what a caller waits for Redis to take a grant back.
const giveTimeout = time.Second

// Give ends a grant, also after ctx has ended. Unused says that nothing was written
// upstream: the quota returns. In pools with plenty of places a used one is written
// within a tenth of a second with others, while Run runs. A second Give does nothing.
// When Redis cannot be reached the grant ends by its lease, and its quota counts as used.
func (q *Queue) Give(ctx context.Context, g *Grant, unused bool) error {
	p, err := q.pool(g.Pool)
	if err != nil {
		return err
	}
	q.mu.Lock()
	delete(q.grants, g)
	if g.share {
		q.giveShare(p, g)
		q.mu.Unlock()
		return nil
	}
	how := p.settled(unused, g.Used)
	later := how == asBooked && q.keeping.Load() && (p.Concurrency == 0 || p.Concurrency >= plenty)
	many := false
	if later { // it is taken off the books with many others
		q.used[p] = append(q.used[p], g.ID)
		many = p.Concurrency > 0 && len(q.used[p]) >= p.Concurrency/usedShare
	}
	q.mu.Unlock()
	if later {
		if many {
			q.wakeForget()
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveTimeout)
	defer cancel()
	args := append([]any{g.ID, g.at, g.Tokens, how}, p.limits...)
	_, err = q.eval(ctx, "give", giveScript, p.keys[:2], args...)
	return err
}

// Ended grants are taken off the books together, every usedEvery, and sooner when
// those of this process take up a usedShare of the places. Where places are few each
// comes back at once: the next call of the same caller may need it.
const (
	plenty    = 1000
	usedShare = 200 // half a percent
	usedEvery = 100 * time.Millisecond
)

// wakeForget makes forgetting happen soon.
func (q *Queue) wakeForget() {
	select {
	case q.soon <- struct{}{}:
	default: // it is under way already
	}
}

// keepForgetting takes ended grants off the books until ctx is done.
func (q *Queue) keepForgetting(ctx context.Context) {
	q.keeping.Store(true)
	defer q.keeping.Store(false)
	tick := time.NewTicker(usedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			q.forgetUsed(ctx)
			return
		case <-q.soon:
		case <-tick.C:
		}
		q.forgetUsed(ctx)
	}
}

// forgetUsed takes ended grants off the books, one command a pool. What cannot
// be written ends by its lease.
func (q *Queue) forgetUsed(ctx context.Context) {
	ctx = context.WithoutCancel(ctx) // at the end of Run too; the client's timeouts bound it
	q.mu.Lock()
	used := q.used
	q.used = make(map[*pool][]any)
	q.mu.Unlock()
	for p, ids := range used {
		if err := q.rdb.ZRem(ctx, p.keys[1], ids...).Err(); err != nil {
			q.log.WarnContext(ctx, "forget ended grants", "pool", p.ID, "err", err)
		}
	}
}

// Block stops all grants of a pool for d, after the provider asked for it. The
// longest block wins.
func (q *Queue) Block(ctx context.Context, poolID string, d time.Duration) error {
	p, err := q.pool(poolID)
	if err != nil {
		return err
	}
	_, err = q.eval(ctx, "block", blockScript, p.keys[:1], max(d, 0).Microseconds())
	return err
}

// keepGrants renews the leases of live grants until ctx is done, and sooner where that failed:
// calls whose leases ran out during an outage do not count against the concurrency until then.
func (q *Queue) keepGrants(ctx context.Context) {
	for {
		rest := q.opts.Lease / 3
		if !q.renewGrants(ctx) {
			rest = min(rest, time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
	}
}

// renewGrants extends the leases of all open live grants, one call per pool. It reports
// whether all are renewed.
func (q *Queue) renewGrants(ctx context.Context) (all bool) {
	all = true
	ids := make(map[string][]any)
	q.mu.Lock()
	for g := range q.grants {
		ids[g.Pool] = append(ids[g.Pool], g.ID, "")
	}
	q.mu.Unlock()
	for id, pairs := range ids {
		if _, err := q.renew(ctx, q.pools()[id], pairs); err != nil {
			q.log.WarnContext(ctx, "renew grants", "pool", id, "err", err)
			all = false
		}
	}
	return all
}

// renew extends leases of (id, token) pairs and returns one letter per pair.
func (q *Queue) renew(ctx context.Context, p *pool, pairs []any) (string, error) {
	keys := []string{p.keys[1], p.keys[2], p.keys[3], p.keys[10], p.keys[6]}
	var letters string
	for len(pairs) > 0 {
		n := min(len(pairs), 1000)
		args := append([]any{q.opts.Lease.Microseconds()}, pairs[:n]...)
		part, err := q.eval(ctx, "lease", leaseScript, keys, args...)
		if err != nil {
			return letters, err
		}
		letters, pairs = letters+part, pairs[n:]
	}
	return letters, nil
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
