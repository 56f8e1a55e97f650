package quota

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// GrantLife is how long a grant may wait before its request is written upstream. The
// ring in quota.lua covers it: a constant of the proof that no sliding minute exceeds the
// quota.
const GrantLife = 500 * time.Millisecond

// Ageless is the age of a grant of a pool without a quota, in replies of scripts: it does
// not grow stale.
const Ageless = "-1"

// Request is what a live call asks for.
type Request struct {
	Pool, ID  string // ID is the call's
	Org, User string
	// Model is as the provider knows it: a quota that the provider has named for
	// another model does not make this call too large. "" is any.
	Model  string
	Tokens int64
	// Lane is what queue.Lane returns of the key and model of a call that cannot wait in
	// the queue, "" for one that can. The latter goes behind all waiting jobs of its
	// user, the former only behind those that may run or are of its lane.
	Lane string
}

// Grant is the leave to write one request upstream, within GrantLife.
type Grant struct {
	// Pool and ID (the call id) name the grant; Tokens is what it booked.
	Pool, ID string
	Tokens   int64
	// Used is how many tokens the provider counted, to be set before Give where
	// it counts actual ones; negative when not known.
	Used int64
	// At is when it was granted, in Unix microseconds by the pool's time.
	At string

	born  time.Time
	free  bool // the pool has no quota: it does not grow stale
	ended bool
	share bool // of this process's share; Redis knows nothing of it
}

// Age is how long ago it was granted.
func (g *Grant) Age() time.Duration { return time.Since(g.born) }

// Fresh reports whether the request may still be written upstream. A stale
// grant is given back unused.
func (g *Grant) Fresh() bool { return g.free || g.Age() < GrantLife }

// BusyError refuses a live call: the quota has no room for it now.
type BusyError struct {
	// Wait is a hint when to ask again; 0 when Never.
	Wait time.Duration
	// Reason is one of blocked, rpm, tpm, concurrency, flow (its own user has
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
		return "quota: the call alone exceeds the provider quota of a minute"
	}
	return fmt.Sprintf("quota: busy (%s), ask again in %s", e.Reason, e.Wait)
}

// Take asks for one request of so many tokens from the pool's quota. It is idempotent on
// its ID. The error is a *BusyError or one of Redis; in the latter case what may have
// been granted is given back. The grant is open, and renewed by Run, until Give.
func (q *Quota) Take(ctx context.Context, r Request) (*Grant, error) {
	p, err := q.pool(r.Pool)
	if err != nil {
		return nil, err
	}
	g := newGrant(p, r)
	reply, err := takeScript.Run(ctx, q.opts.Scripts, p.takes, q.takeArgs(p, g, r)...).Text()
	if err != nil {
		if lost(err) {
			q.returnLost(ctx, g)
		}
		return nil, q.failed(p, err)
	}
	return q.granted(p, g, reply)
}

// newGrant is the grant that is asked for now.
func newGrant(p *pool, r Request) *Grant {
	return &Grant{Pool: p.ID, ID: r.ID, Tokens: max(r.Tokens, 0), Used: -1, born: time.Now()}
}

// takeArgs is the ARGV that lua/take.lua lists.
func (q *Quota) takeArgs(p *pool, g *Grant, r Request) []any {
	args := make([]any, 0, 8+len(p.limits))
	args = append(args, q.clock(), g.ID, r.Org, r.User, g.Tokens, q.lease)
	args = append(args, p.limits...)
	return append(args, r.Model, r.Lane)
}

// failed is the error of a take that Redis did not answer.
func (q *Quota) failed(p *pool, err error) error {
	q.metrics.grants.WithLabelValues(p.ID, "error").Inc()
	return fmt.Errorf("quota: take: %w", err)
}

// granted reads the reply of the take script.
func (q *Quota) granted(p *pool, g *Grant, reply string) (*Grant, error) {
	w, err := words("take", reply, 2)
	if err != nil {
		return nil, err
	}
	if w[0] == "ok" {
		q.metrics.grants.WithLabelValues(p.ID, "granted").Inc()
		g.At = w[1]
		if len(w) > 2 { // replayed: it has lived for as long
			g.free = w[2] == Ageless
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

// lost reports whether the script may have been carried out all the same.
func lost(err error) bool {
	var refused redis.Error
	return err != nil && !errors.As(err, &refused)
}

// lost is Grant.At of one whose reply was lost: only Redis knows when it was granted.
func (q *Quota) lost() string { return "-" + strconv.FormatInt(q.opts.Lease.Microseconds(), 10) }

// returnLost gives back what may have been granted by a reply that was lost. Nobody
// waits for it; what Redis does not take back ends by its lease.
func (q *Quota) returnLost(ctx context.Context, g *Grant) {
	g.At = q.lost()
	ctx = context.WithoutCancel(ctx)
	q.returns.Go(func() {
		if err := q.Give(ctx, g, true); err != nil {
			q.log.WarnContext(ctx, "a grant whose reply was lost is not given back; its lease frees it", "pool", g.Pool, "err",
				err)
		}
	})
}

// giveTimeout bounds what a caller waits for Redis to take a grant back.
const giveTimeout = time.Second

// Give ends a grant, also after ctx has ended. Unused says that nothing was written
// upstream: the quota returns. In pools with plenty of places a used one is written
// within a tenth of a second with others, while Run runs. A second Give does nothing.
// When Redis cannot be reached the grant ends by its lease, and its quota counts as used.
func (q *Quota) Give(ctx context.Context, g *Grant, unused bool) error {
	p, err := q.pool(g.Pool)
	if err != nil {
		return err
	}
	if q.giveHere(p, g, unused) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveTimeout)
	defer cancel()
	args := append([]any{g.ID, g.At, g.Tokens, p.Use(unused, g.Used)}, p.limits...)
	_, err = q.eval(ctx, "give", giveScript, p.takes[:2], args...)
	return err
}

// giveHere ends a grant as far as this process is concerned, and reports whether Redis
// need not be told, or will be together with others.
func (q *Quota) giveHere(p *pool, g *Grant, unused bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.grants, g)
	if g.share {
		q.giveShare(p, g)
		return true
	}
	plain := p.Use(unused, g.Used) == AsBooked
	if !plain || !q.forgets.Load() || p.Concurrency > 0 && p.Concurrency < plenty {
		return false
	}
	q.used[p] = append(q.used[p], g.ID)
	if p.Concurrency > 0 && len(q.used[p]) >= p.Concurrency/usedShare {
		select {
		case q.forgetNow <- struct{}{}:
		default: // it is under way already
		}
	}
	return true
}

// AsBooked says that a grant counts as it was booked.
const AsBooked = "booked"

// Use says how a grant was used, for quota_settle in quota.lua. Used is how many tokens
// the provider counted, negative when that is not known.
func (p Pool) Use(unused bool, used int64) string {
	switch {
	case unused:
		return "unused"
	case p.ActualTokens && used >= 0:
		return strconv.FormatInt(used, 10)
	}
	return AsBooked
}

// Block stops all grants of a pool for d. The longest block wins.
func (q *Quota) Block(ctx context.Context, poolID string, d time.Duration) error {
	p, err := q.pool(poolID)
	if err != nil {
		return err
	}
	_, err = q.eval(ctx, "block", blockScript, p.takes[:1], max(d, 0).Microseconds())
	return err
}
