package budget

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/wire"
)

// limiterScope is the prefix of a Limiter's name where other keys have the org; org ids must not
// begin with it.
const limiterScope = "limiter:"

// NewCallID returns a new id for a [Call], which begins with the current time.
func NewCallID() string { return wire.NewCallID() }

// Rate returns a limit for a [Limiter]: amount units in any period of this length, for each id
// separately. Up to a 60th of the period late, what was used is free again. per is 60 us to 366 days.
func Rate(amount int64, per time.Duration) Limit {
	return Limit{
		ID: fmt.Sprintf("%d-in-%s", amount, per), Subject: User, Metric: Tokens,
		Shape: Shape{Kind: Window, Amount: amount, Window: per},
	}
}

// Limiter limits how many units each id uses, for programs that limit something other than calls: requests of
// an address, mails of a customer. It is safe for concurrent use. All Limiters of one name on one
// Redis count together, in any number of processes.
//
// It holds and settles like a [Store], without a ledger. For money that is known only afterwards,
// use a Store.
type Limiter struct {
	store  *Store
	scope  string
	limits []Limit
	stop   context.CancelFunc
	done   chan struct{}
}

// NewLimiter returns a Limiter under these limits, all of which have to admit a request. The name
// has 1 to 64 letters, digits, dots, dashes or underscores. Limits count units (metric Tokens) or
// one per request (Requests), for each id (subject User) or for all ids together (Org): see [Rate].
// If Redis loses its data, they count from zero.
//
// Redis keeps a key for each id that is counted now, and about 100 bytes for each request of the
// last half hour, so that a request with a lost reply is not counted twice. Close the Limiter when
// it is no longer used; Close does not close rdb, see package goredis.
func NewLimiter(rdb redisconn.DB, name string, limits ...Limit) (*Limiter, error) {
	if !ledger.ValidID(name) {
		return nil, fmt.Errorf("budget: limiter %q: name must be 1 to 64 letters, digits, dots, dashes or underscores", name)
	}
	if len(limits) == 0 {
		return nil, fmt.Errorf("budget: limiter %s has no limits", name)
	}
	for _, l := range limits {
		if err := l.Validate(); err != nil {
			return nil, err
		}
		if l.Metric != Tokens && l.Metric != Requests {
			return nil, fmt.Errorf("budget: limit %q of a limiter must count tokens or requests, not %s", l.ID, l.Metric)
		}
		if l.Subject != User && l.Subject != Org {
			return nil, fmt.Errorf("budget: limit %q of a limiter must be for user (each id) or org (all), not %s",
				l.ID, l.Subject)
		}
	}
	store := New(rdb, Options{Horizon: limiterHorizon, Tail: -1, OpenAfterLoss: true})
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // Close ends it
	l := &Limiter{store: store, scope: limiterScope + name, limits: limits, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		_ = store.Run(ctx) // its error is that of ctx
	}()
	return l, nil
}

// limiterHorizon is Options.Horizon of Limiters, whose requests end immediately.
const limiterHorizon = 10 * time.Minute

// Close stops the Limiter's background work.
func (l *Limiter) Close() {
	l.stop()
	<-l.done
}

// Result is a Limiter's answer to one request.
type Result struct {
	Allowed bool
	// LimitID, Limit, Remaining and Reset describe the limit that refused the request with the longest
	// wait, or else that with the least left: its id and amount, what is left after the request, and
	// the time until nothing is used. LimitID is empty if no limit is enforced.
	LimitID          string
	Limit, Remaining int64
	Reset            time.Duration
	// RetryAfter is when a refused request fits, if no other takes the capacity; [Endless] if never.
	// It is 0 for an allowed one.
	RetryAfter time.Duration
	Statuses   []Status // of all limits
}

// Allow takes n units, at least 1, of every limit for an id, or of none; that they do not fit is not an error. Requests
// with an empty id share one counter. An error wraps ErrUnavailable if Redis does not answer: the
// request may have been counted, and the caller decides whether it is allowed.
func (l *Limiter) Allow(ctx context.Context, id string, n int64) (Result, error) {
	if n < 1 || n > MaxAmount {
		return Result{}, fmt.Errorf("budget: %d units are not in 1..%d", n, int64(MaxAmount))
	}
	units := Amounts{Tokens: n}
	call := ledger.Call{ID: NewCallID(), Org: l.scope, User: shortID(id)}
	h, err := l.store.Hold(ctx, Terms{Limits: l.limits, Call: call, Max: units, Expected: units})
	var exceeded *ExceededError
	if errors.As(err, &exceeded) {
		b := exceeded.Binding
		r := Result{
			LimitID: b.LimitID, Limit: b.Amount, Remaining: b.Remaining, Reset: b.Reset, RetryAfter: b.Wait,
			Statuses: exceeded.Statuses,
		}
		if b.Never {
			r.RetryAfter = Endless
		}
		return r, nil
	}
	if err != nil {
		return Result{}, err
	}
	ending := Settle{h, &Settlement{Actual: units}}
	if _, err := l.store.Settle(ctx, h, *ending.Settlement); err != nil { // it is counted already
		if err := l.store.Later(context.WithoutCancel(ctx), []Settle{ending}, nil); err != nil {
			return Result{}, err
		}
	}
	return allowed(h.Statuses), nil
}

// allowed returns the result of a request that left the limits in these states.
func allowed(statuses []Status) Result {
	r := Result{Allowed: true, Statuses: statuses}
	for _, s := range statuses {
		if s.Mode == Enforce && (r.LimitID == "" || s.Remaining < r.Remaining) {
			r.LimitID, r.Limit = s.LimitID, s.Amount
			r.Remaining, r.Reset = s.Remaining, s.Reset
		}
	}
	return r
}

// longestID is the length up to which ids are used in keys as they are.
const longestID = 64

// shortID returns an id that may be part of a key. Callers may choose long ones to fill Redis.
func shortID(id string) string {
	if len(id) <= longestID && !strings.ContainsFunc(id, func(r rune) bool { return r < ' ' }) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256-" + hex.EncodeToString(sum[:16])
}
