package quota

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// GrantLife is how long a grant may wait before its request is written upstream. The ring
// in quota.lua accounts for it, as part of the proof that no sliding minute exceeds the
// quota.
const GrantLife = 500 * time.Millisecond

// Ageless is the age, in replies of scripts, of a grant of a pool without a quota: it does
// not go stale.
const Ageless = "-1"

// Request is what a live call asks for.
type Request struct {
	Pool, ID  string // ID is the call's
	Org, User string
	// Model is the provider's name for the model: a quota that the provider has
	// reported for another model does not make this call too large. "" matches any.
	Model  string
	Tokens int64
	// Lane is what queue.Lane returns for the key and model of a call that cannot wait
	// in the queue, "" for one that can. A call without a lane yields to all waiting
	// jobs of its user, a call with one only to jobs that may run or are in its lane.
	Lane string
	// Priority decides whether the call leaves scarce quota to waiting jobs: low to all,
	// normal to its org's jobs of high priority.
	Priority Priority
}

// Grant is the permission to write one request upstream within GrantLife.
type Grant struct {
	// Pool and ID (the call id) name the grant; Tokens is what it booked.
	Pool, ID string
	Tokens   int64
	// Counted is what the provider counted. Set it before Give if it counts actual tokens.
	Counted
	// At is when it was granted, in Unix microseconds of the pool's time.
	At string

	born  time.Time
	free  bool // the pool has no quota, so it does not go stale
	ended bool
	share bool // of this process's share; not known to Redis
}

// Counted is what a provider counted of a call, in tokens.
type Counted struct {
	Used   int64 `json:"used,omitempty"`   // input and output; negative: unknown
	Cached int64 `json:"cached,omitempty"` // the part of it that was read from a prompt cache
	Output int64 `json:"output,omitempty"` // the part of it that is output
}

// Age returns how long ago the grant was made.
func (g *Grant) Age() time.Duration { return time.Since(g.born) }

// ErrStale means that the grant of a request was too old when the request was about to be written.
var ErrStale = errors.New("the quota grant expired before the request was written")

// Permit returns ErrStale if the request may no longer be written upstream; give the grant back
// unused then. A nil Grant permits everything.
func (g *Grant) Permit() error {
	if g == nil || g.free || g.Age() < GrantLife {
		return nil
	}
	return ErrStale
}

// BusyError refuses a live call because the quota has no room for it now.
type BusyError struct {
	// Wait suggests when to retry; 0 if Never.
	Wait time.Duration
	// Reason is one of blocked, rpm, tpm, itpm, otpm, concurrency, flow (its own user has waiting
	// jobs, which it may not overtake), priority (jobs of higher priority wait for quota)
	// and never.
	Reason string
	// Never means the call alone exceeds the pool's quota.
	Never bool
	// Limit is, if Never, the pool's tokens per minute, configured or reported by the
	// provider; otherwise 0.
	Limit int64
	// Share means Redis is unavailable and this process's share is used up, so there is
	// no queue to wait in.
	Share bool
}

func (e *BusyError) Error() string {
	if e.Never {
		return "quota: the call alone exceeds the provider's quota for a minute"
	}
	return fmt.Sprintf("quota: busy (%s), ask again in %s", e.Reason, e.Wait)
}

// Take requests quota for one request with the given tokens. It is idempotent on the
// request's ID. The error is a *BusyError or comes from Redis; in the latter case what may
// have been granted is returned. The grant stays open, and is renewed by Run, until Give.
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

// newGrant returns the grant for a request made now.
func newGrant(p *pool, r Request) *Grant {
	return &Grant{Pool: p.ID, ID: r.ID, Tokens: max(r.Tokens, 0), Counted: Counted{Used: -1}, born: time.Now()}
}

// takeArgs returns the ARGV listed in lua/take.lua.
func (q *Quota) takeArgs(p *pool, g *Grant, r Request) []any {
	args := make([]any, 0, 9+len(p.limits))
	args = append(args, q.clock(), g.ID, r.Org, r.User, g.Tokens, q.lease)
	args = append(args, p.limits...)
	return append(args, r.Model, r.Lane, r.Priority.Mark())
}

// failed returns the error of a take that Redis did not answer.
func (q *Quota) failed(p *pool, err error) error {
	q.metrics.grants.WithLabelValues(p.ID, "error").Inc()
	return fmt.Errorf("quota: take: %w", err)
}

// granted decodes the reply of the take script.
func (q *Quota) granted(p *pool, g *Grant, reply string) (*Grant, error) {
	w, err := words("take", reply, 2)
	if err != nil {
		return nil, err
	}
	if w[0] == "ok" {
		q.metrics.grants.WithLabelValues(p.ID, "granted").Inc()
		g.At = w[1]
		if len(w) > 2 { // replayed: it was granted that long ago
			g.free = w[2] == Ageless
			g.born = g.born.Add(-max(micros(w[2]), 0))
		}
		if len(w) > 3 {
			q.Tries(p.ID)
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

// lost reports whether the script may have run despite the error.
func lost(err error) bool {
	var refused redisconn.Error
	return err != nil && !errors.As(err, &refused)
}

// lost returns Grant.At of a grant whose reply was lost: only Redis knows when it was made.
func (q *Quota) lost() string { return "-" + strconv.FormatInt(q.opts.Lease.Microseconds(), 10) }

// returnLost returns, in the background, what may have been granted by a lost reply. What
// Redis does not take back ends with its lease.
func (q *Quota) returnLost(ctx context.Context, g *Grant) {
	g.At = q.lost()
	ctx = context.WithoutCancel(ctx)
	q.returns.Go(func() {
		if err := q.Give(ctx, g, true); err != nil {
			q.log.WarnContext(ctx, "quota grant with a lost reply not returned, its lease will expire", "pool", g.Pool, "err",
				err)
		}
	})
}

// giveTimeout bounds how long a caller waits for Redis to take a grant back.
const giveTimeout = time.Second

// Give ends a grant, even after ctx has ended. unused means nothing was written upstream,
// so the quota is returned. In pools with many slots, used grants are written in batches
// within a tenth of a second while Run runs. A second Give does nothing. If Redis is
// unreachable, the grant ends with its lease and its quota counts as used.
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
	args := append([]any{g.ID, g.At, g.Tokens, p.Use(unused, g.Counted)}, p.limits...)
	_, err = q.eval(ctx, "give", giveScript, p.takes[:2], args...)
	return err
}

// giveHere ends a grant in this process. It reports whether that suffices: Redis is not
// involved, or is updated later in a batch.
func (q *Quota) giveHere(p *pool, g *Grant, unused bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.grants, g)
	if g.share {
		q.giveShare(p, g)
		return true
	}
	plain := p.Use(unused, g.Counted) == AsBooked
	if !plain || !q.forgets.Load() || p.Concurrency > 0 && p.Concurrency < plenty {
		return false
	}
	q.used[p] = append(q.used[p], g.ID)
	if p.Concurrency > 0 && len(q.used[p]) >= p.Concurrency/usedShare {
		select {
		case q.forgetNow <- struct{}{}:
		default: // already requested
		}
	}
	return true
}

// AsBooked means that a grant counts as booked.
const AsBooked = "booked"

// Use returns how a grant was used, for quota_settle in quota.lua.
func (p Pool) Use(unused bool, c Counted) string {
	switch {
	case unused:
		return "unused"
	case p.Split && c.Used >= 0:
		return fmt.Sprintf("%d,%d", max(c.Used-c.Cached-c.Output, 0), max(c.Output, 0))
	case p.ActualTokens && c.Used >= 0:
		return strconv.FormatInt(c.Used, 10)
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

// Resume ends the pause of a pool. It returns how long the pause would have lasted.
func (q *Quota) Resume(ctx context.Context, poolID string) (time.Duration, error) {
	p, err := q.pool(poolID)
	if err != nil {
		return 0, err
	}
	left, err := q.eval(ctx, "resume", resumeScript, p.takes[:1])
	return micros(left), err
}
