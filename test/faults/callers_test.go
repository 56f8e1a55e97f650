package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

const (
	userBudget = 1000 // of each user
	mostHeld   = 100
	deadline   = 250 * time.Millisecond // of a hold
	pause      = 10 * time.Millisecond  // between the calls of a caller, on average
)

// callers are clients that hold, extend, settle and void on a failing store, and remember the
// replies. Every end of a call is repeated until it is confirmed. The user changes after some
// refusals, so that limits are always contended.
type callers struct {
	t       *testing.T
	stores  []*budget.Store
	repairs []*repairs // one per store
	orgs    []string
	forgets bool // the store may lose what it has confirmed
	cancel  context.CancelFunc
	work    sync.WaitGroup // callers
	keep    sync.WaitGroup // Store.Run
	seq     atomic.Int64
	joined  atomic.Int64 // batches that were joined

	mu       sync.Mutex
	counts   counts
	people   map[string]*person       // by org/user
	current  map[string]int           // number of an org's current user
	receipts map[string]receipt       // of settled calls, by id
	voided   []ledger.Call            // released
	heldAt   map[string]time.Time     // start of the last hold that got a reply, by org
	gap      map[string]time.Duration // longest time between replies, by org
	answered map[string]time.Time     // time of the last reply, by org
	problems []string
}

// counts counts the results of holds.
type counts struct{ held, refused, unanswered int }

// person is what the callers know about one user's money: at least known and at most most is
// counted in the store.
type person struct{ known, most int64 }

// receipt is a confirmed settlement.
type receipt struct {
	call   ledger.Call
	hold   *budget.Hold
	actual int64
}

// newCallers returns callers in several orgs, with one process per client. The scripts use the
// shared pipeline, as in the program.
func newCallers(t *testing.T, lease time.Duration, orgs int, clients ...redis.UniversalClient) *callers {
	l := &callers{
		t: t, people: map[string]*person{}, current: map[string]int{}, receipts: map[string]receipt{},
		heldAt: map[string]time.Time{}, gap: map[string]time.Duration{}, answered: map[string]time.Time{},
	}
	for i := range orgs {
		l.orgs = append(l.orgs, fmt.Sprintf("org%d", i))
	}
	for _, rdb := range clients {
		seen := &repairs{}
		l.repairs = append(l.repairs, seen)
		l.stores = append(l.stores, budget.New(redistest.DB(rdb), budget.Options{
			Lease: lease, Scripts: redisconn.Joined(redistest.DB(rdb), l.join(rdb)), Log: slog.New(seen),
		}))
		t.Cleanup(func() { _ = rdb.Close() })
	}
	return l
}

// join is budget.Join, and counts the batches that it joins.
func (l *callers) join(rdb redis.UniversalClient) redisconn.Join {
	join := budget.Join(redistest.DB(rdb))
	return func(cmds []redisconn.Reply) func(context.Context, redisconn.Pipe) bool {
		step := join(cmds)
		if step != nil {
			l.joined.Add(1)
		}
		return step
	}
}

func cost(n int64) budget.Amounts { return budget.Amounts{Cost: pricing.Nano(n)} }

func costLimit(id string, s budget.Subject, shape budget.Shape) budget.Limit {
	return budget.Limit{ID: id, Subject: s, Metric: budget.Cost, Shape: shape}
}

func hour(amount int64) budget.Shape {
	return budget.Shape{Kind: budget.Window, Amount: amount, Window: time.Hour}
}

func (l *callers) limits() []budget.Limit {
	return []budget.Limit{
		costLimit("user", budget.User, hour(userBudget)),
		costLimit("purse", budget.User, budget.Shape{Kind: budget.Bucket, Amount: userBudget}),
		costLimit("month", budget.Org, budget.Shape{Kind: budget.Calendar, Amount: 1e15, Calendar: "month"}),
		{ID: "par", Subject: budget.Org, Metric: budget.Concurrency, Shape: budget.Shape{Kind: budget.Concurrent, Amount: 1e6}},
	}
}

// start starts n callers, which run until stop.
func (l *callers) start(n int) {
	ctx, cancel := context.WithCancel(l.t.Context())
	keepers, end := context.WithCancel(l.t.Context())
	l.cancel = cancel
	for _, s := range l.stores {
		l.keep.Go(func() { _ = s.Run(keepers) })
	}
	l.t.Cleanup(func() { cancel(); redistest.Wait(l.t, l.work.Wait); end(); redistest.Wait(l.t, l.keep.Wait) })
	for i := range n {
		rng := rand.New(rand.NewPCG(uint64(i), 77))
		l.work.Go(func() {
			for ctx.Err() == nil {
				l.one(ctx, l.stores[i%len(l.stores)], l.orgs[i%len(l.orgs)], rng)
				time.Sleep(time.Duration(rng.Int64N(2 * int64(pause))))
			}
		})
	}
}

// stop stops the callers after their current calls.
func (l *callers) stop() {
	l.cancel()
	redistest.Wait(l.t, l.work.Wait)
}

func (l *callers) problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.problems) < 10 {
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}

func (l *callers) newCall(org string) (ledger.Call, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.current[org]
	return ledger.Call{
		ID: callID(time.Now(), int(l.seq.Add(1))), Org: org, User: fmt.Sprintf("u%d", n), Key: "k", Model: "m",
	}, n
}

// callID returns a call id for a time: ten base32 digits first.
func callID(at time.Time, n int) string {
	const digits = "0123456789abcdefghjkmnpqrstvwxyz"
	ms := at.UnixMilli()
	var text [10]byte
	for i := 9; i >= 0; i-- {
		text[i] = digits[ms&31]
		ms >>= 5
	}
	return fmt.Sprintf("%s%016d", text[:], n)
}

// took adds to a user's known usage.
func (l *callers) took(c ledger.Call, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.people[c.Org+"/"+c.User]
	if p == nil {
		p = &person{}
		l.people[c.Org+"/"+c.User] = p
	}
	p.known += n
	p.most = max(p.most, p.known)
}

// one makes one call, from its hold to its end.
func (l *callers) one(ctx context.Context, s *budget.Store, org string, rng *rand.Rand) {
	c, user := l.newCall(org)
	most := 1 + rng.Int64N(mostHeld)
	h := l.hold(ctx, s, c, user, most)
	if h == nil {
		return
	}
	if rng.IntN(5) == 0 {
		_, err := s.Extend(ctx, h, cost(10))
		if err == nil {
			most += 10
			l.took(c, 10)
		}
	}
	if rng.IntN(4) == 0 {
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
	if rng.IntN(7) == 0 {
		l.void(s, h, most)
		return
	}
	actual := rng.Int64N(most + 1)
	l.took(c, actual-most)
	l.settle(s, h, actual, false)
	l.settled(h, actual)
	if rng.IntN(10) == 0 {
		l.settle(s, h, actual, true)
	}
}

// hold makes a hold with the deadline of a live call. A hold without a reply is released.
func (l *callers) hold(ctx context.Context, s *budget.Store, c ledger.Call, user int, most int64) *budget.Hold {
	once, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline)
	defer cancel()
	began := time.Now()
	h, err := s.Hold(once, budget.Terms{Limits: l.limits(), Call: c, Max: cost(most), Expected: cost(most)})
	var refused *budget.ExceededError
	switch {
	case err == nil:
		l.took(c, most)
		l.answer(c.Org, began, func() { l.counts.held++ })
		return h
	case errors.As(err, &refused):
		l.answer(c.Org, began, func() {
			l.counts.refused++
			if l.counts.refused%20 == 0 {
				l.current[c.Org] = max(l.current[c.Org], user+1)
			}
		})
	case errors.Is(err, budget.ErrUnavailable):
		l.mu.Lock()
		l.counts.unanswered++
		l.mu.Unlock()
		l.insist("give back", func(ctx context.Context) error { return s.VoidLost(ctx, c) })
	default:
		l.problem("hold: %v", err)
	}
	return nil
}

// answer records the reply to a hold that started at a given time.
func (l *callers) answer(org string, began time.Time, count func()) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	count()
	last := l.answered[org]
	if !last.IsZero() {
		l.gap[org] = max(l.gap[org], now.Sub(last))
	}
	l.answered[org] = now
	if began.After(l.heldAt[org]) {
		l.heldAt[org] = began
	}
}

// insist repeats a write until it is confirmed, like package guard.
func (l *callers) insist(what string, do func(ctx context.Context) error) {
	end := time.Now().Add(5 * time.Minute)
	for {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), 2*time.Second)
		err := do(ctx)
		cancel()
		if err == nil {
			return
		}
		if !errors.Is(err, budget.ErrUnavailable) || time.Now().After(end) {
			l.problem("%s: %v", what, err)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (l *callers) settle(s *budget.Store, h *budget.Hold, actual int64, again bool) {
	l.insist("settle", func(ctx context.Context) error {
		r, err := s.Settle(ctx, h, budget.Settlement{Actual: cost(actual)})
		if err == nil && (int64(r.Charged) != actual || again && !r.Replayed && !l.forgets) {
			l.problem("settle of %d (again %v): %+v", actual, again, r)
		}
		return err
	})
}

func (l *callers) settled(h *budget.Hold, actual int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.receipts[h.Call.ID] = receipt{h.Call, h, actual}
}

func (l *callers) void(s *budget.Store, h *budget.Hold, most int64) {
	l.took(h.Call, -most)
	l.insist("void", func(ctx context.Context) error { return s.Void(ctx, h) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.voided = append(l.voided, h.Call)
}
