package budget

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// long asks for the long forms of the fault tests: minutes instead of seconds.
var long = os.Getenv("LLMGUARD_LONG") != ""

// forLong returns short, or what the long form takes.
func forLong(short, longer time.Duration) time.Duration {
	if long {
		return longer
	}
	return short
}

const (
	userBudget = 1000 // of each user of a load
	mostHeld   = 100
)

// callers are clients that hold, extend, settle and void against a store that
// fails, and remember what they were told. Every call of a caller insists until
// it is answered; the user changes after some refusals, so that limits are always
// contended.
type callers struct {
	t       *testing.T
	stores  []*Store
	orgs    []string
	forgets bool // the store may forget what it answered
	cancel  context.CancelFunc
	work    sync.WaitGroup // callers
	keep    sync.WaitGroup // Store.Run
	seq     atomic.Int64

	mu       sync.Mutex
	people   map[string]*person // by org/user
	current  map[string]int     // org -> number of its current user
	told     map[string]receipt // by call id: settled
	voided   []Call             // given back, and told so
	okAt     map[string]time.Time
	stall    map[string]time.Duration // longest time without an answered hold, by org
	unknown  int                      // holds without an answer
	refused  int
	held     int
	slowest  time.Duration // of a Hold with a deadline of 250 ms
	starved  time.Duration // the most by which this process woke too late
	problems []string
}

// person is one user's money as the callers know it: never more than is counted
// in the store.
type person struct{ known, most int64 }

type receipt struct {
	call   Call
	hold   *Hold
	actual int64
	at     time.Time // when the caller was told
}

// newCallers returns callers in several orgs over clients, one process each. The
// scripts go down the shared pipeline as in the program.
func newCallers(t *testing.T, lease time.Duration, orgs int, clients ...redis.UniversalClient) *callers {
	l := &callers{
		t: t, people: map[string]*person{}, current: map[string]int{}, told: map[string]receipt{},
		okAt: map[string]time.Time{}, stall: map[string]time.Duration{},
	}
	for i := range orgs {
		l.orgs = append(l.orgs, fmt.Sprintf("org%d", i))
	}
	for _, rdb := range clients {
		scripts := redisconn.Joined(rdb, joinFrom(rdb, 2))
		l.stores = append(l.stores, New(rdb, Options{Lease: lease, Scripts: scripts}))
	}
	return l
}

func (l *callers) limits() []Limit {
	return []Limit{
		costLimit("user", User, hour(userBudget)),
		costLimit("purse", User, Shape{Kind: Bucket, Amount: userBudget}),
		costLimit("month", Org, Shape{Kind: Calendar, Amount: 1e15, Calendar: "month"}),
		{ID: "par", Subject: Org, Metric: Concurrency, Shape: Shape{Kind: Concurrent, Amount: 1e6}},
	}
}

// start begins n callers; they end with stop.
func (l *callers) start(n int) {
	ctx, cancel := context.WithCancel(l.t.Context())
	keepers, end := context.WithCancel(l.t.Context())
	l.cancel = cancel
	for _, s := range l.stores {
		l.keep.Go(func() { _ = s.Run(keepers) })
	}
	l.t.Cleanup(func() { cancel(); l.work.Wait(); end(); l.keep.Wait() })
	l.work.Go(func() {
		for ctx.Err() == nil {
			l.nap()
		}
	})
	for i := range n {
		rng := rand.New(rand.NewPCG(uint64(i), 77))
		l.work.Go(func() {
			for ctx.Err() == nil {
				l.one(ctx, l.stores[i%len(l.stores)], l.orgs[i%len(l.orgs)], rng)
			}
		})
	}
}

// nap sleeps a little and notes how much longer it became.
func (l *callers) nap() {
	const short = 5 * time.Millisecond
	began := time.Now()
	time.Sleep(short)
	late := time.Since(began) - short
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starved = max(l.starved, late)
}

// judged reports whether the machine had time for us: how fast a store is, and
// how far a replica is behind, tell of llmguard only then.
func (l *callers) judged() bool {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.starved > 100*time.Millisecond {
		l.t.Logf("not judged: this machine let us wait for %s", l.starved)
		return false
	}
	return true
}

// stop ends the callers, after the call each is in.
func (l *callers) stop() {
	l.cancel()
	l.work.Wait()
}

func (l *callers) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.problems) < 10 {
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}

func (l *callers) newCall(org string) (Call, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.current[org]
	return Call{
		ID: idAt(time.Now(), int(l.seq.Add(1))), Org: org, User: fmt.Sprintf("u%d", n), Key: "k", Model: "m",
	}, n
}

// took adds to what is known to be counted of a user.
func (l *callers) took(c Call, n int64) {
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

// one is one call from its hold to its end.
func (l *callers) one(ctx context.Context, s *Store, org string, rng *rand.Rand) {
	c, user := l.newCall(org)
	most := 1 + rng.Int64N(mostHeld)
	h := l.hold(ctx, s, c, user, most)
	if h == nil {
		return
	}
	if rng.IntN(5) == 0 {
		if _, err := s.Extend(ctx, h, cost(10)); err == nil {
			most += 10
			l.took(c, 10)
		}
	}
	if rng.IntN(4) == 0 {
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
	if rng.IntN(7) == 0 {
		l.took(c, -most)
		l.insist("void", func(ctx context.Context) error { return s.Void(ctx, h) })
		l.mu.Lock()
		l.voided = append(l.voided, c)
		l.mu.Unlock()
		return
	}
	actual := rng.Int64N(most + 1)
	l.took(c, actual-most)
	l.settle(s, h, actual, false)
	l.mu.Lock()
	l.told[c.ID] = receipt{c, h, actual, time.Now()}
	l.mu.Unlock()
	if rng.IntN(10) == 0 {
		l.settle(s, h, actual, true)
	}
}

// hold asks for one with the deadline of a live call. One without an answer is
// given back.
func (l *callers) hold(ctx context.Context, s *Store, c Call, user int, most int64) *Hold {
	once, cancel := context.WithTimeout(context.WithoutCancel(ctx), 250*time.Millisecond)
	defer cancel()
	began := time.Now()
	h, err := s.Hold(once, l.limits(), c, cost(most), cost(most))
	took := time.Since(began)
	l.mu.Lock()
	l.slowest = max(l.slowest, took)
	l.mu.Unlock()
	var refused *ExceededError
	switch {
	case err == nil:
		l.took(c, most)
		l.answered(c.Org)
		l.mu.Lock()
		l.held++
		l.mu.Unlock()
		return h
	case errors.As(err, &refused):
		l.answered(c.Org)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.refused++
		if l.refused%20 == 0 {
			l.current[c.Org] = max(l.current[c.Org], user+1)
		}
	case errors.Is(err, ErrUnavailable):
		l.mu.Lock()
		l.unknown++
		l.mu.Unlock()
		l.insist("give back", func(ctx context.Context) error { return s.VoidLost(ctx, c) })
	default:
		l.note("hold: %v", err)
	}
	return nil
}

func (l *callers) answered(org string) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.okAt[org]; !last.IsZero() {
		l.stall[org] = max(l.stall[org], now.Sub(last))
	}
	l.okAt[org] = now
}

// insist repeats a write until it is answered, as the guard does.
func (l *callers) insist(what string, do func(ctx context.Context) error) {
	end := time.Now().Add(5 * time.Minute)
	for {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), 2*time.Second)
		err := do(ctx)
		cancel()
		if err == nil {
			return
		}
		if !errors.Is(err, ErrUnavailable) || time.Now().After(end) {
			l.note("%s: %v", what, err)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (l *callers) settle(s *Store, h *Hold, actual int64, again bool) {
	l.insist("settle", func(ctx context.Context) error {
		r, err := s.Settle(ctx, h, Settlement{Actual: cost(actual)})
		if err == nil && (int64(r.Charged) != actual || again && !r.Replayed && !l.forgets) {
			l.note("settle of %d (again %v): %+v", actual, again, r)
		}
		return err
	})
}

// replay settles and voids again all that the callers were told is done, as
// from their journals, and returns how many of them the store did not know.
func (l *callers) replay() (settles, voids int) {
	l.t.Helper()
	s := l.stores[0]
	for _, r := range l.told {
		l.insist("replay", func(ctx context.Context) error {
			got, err := s.Settle(ctx, r.hold, Settlement{Actual: cost(r.actual)})
			if err == nil && !got.Replayed {
				settles++
			}
			return err
		})
	}
	for _, c := range l.voided {
		known, _ := s.rdb.HExists(l.t.Context(), key(c.Org, c.chunk()), c.holdID()).Result()
		if !known {
			voids++
		}
		l.insist("replay", func(ctx context.Context) error { return s.VoidLost(ctx, c) })
	}
	return settles, voids
}

// missing returns how many settles that callers were told of are not in the
// ledger, their sum, and when the first of them was told.
func (l *callers) missing() (n int, sum int64, first time.Time) {
	l.t.Helper()
	booked := l.ledger()
	for id, r := range l.told {
		if got, ok := booked[id]; !ok || got != r.actual {
			n++
			sum += r.actual - got
			if first.IsZero() || r.at.Before(first) {
				first = r.at
			}
		}
	}
	return n, sum, first
}

// ledger returns what every call is charged.
func (l *callers) ledger() map[string]int64 {
	l.t.Helper()
	booked := map[string]int64{}
	for _, org := range l.orgs {
		err := l.stores[0].Entries(l.t.Context(), org, time.Time{}, time.Time{}, func(e Entry) error {
			booked[e.ID] += int64(e.Cost)
			return nil
		})
		if err != nil {
			l.t.Fatal(err)
		}
	}
	return booked
}

// over returns the users whose acknowledged holds and charges were once more
// than their budget, and by how much in all.
func (l *callers) over() (n int, sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.people {
		if p.most > userBudget {
			n++
			sum += p.most - userBudget
		}
	}
	return n, sum
}

// tell logs what came of the callers.
func (l *callers) tell() {
	l.t.Helper()
	longest := time.Duration(0)
	for _, d := range l.stall {
		longest = max(longest, d)
	}
	l.t.Logf("%d held, %d refused, %d without an answer, %d settled, %d voided; slowest decision %s, longest without any %s",
		l.held, l.refused, l.unknown, len(l.told), len(l.voided), l.slowest.Round(time.Millisecond), longest.Round(time.Millisecond))
}

// within checks that no user was ever over the budget.
func (l *callers) within() {
	l.t.Helper()
	if n, sum := l.over(); n > 0 {
		l.t.Errorf("%d users were over their budget, by %d in all", n, sum)
	}
}

// check waits one lease for abandoned holds and compares the ledger, the limits
// and what the callers were told, to the last unit.
func (l *callers) check() {
	l.t.Helper()
	ctx := l.t.Context()
	for _, p := range l.problems {
		l.t.Error(p)
	}
	if len(l.told) == 0 || l.refused == 0 {
		l.t.Fatalf("%d settled, %d refused: no load", len(l.told), l.refused)
	}
	s := l.stores[0]
	until(l.t, "no open hold", func() bool {
		for _, org := range l.orgs {
			if s.rdb.HLen(ctx, key(org, "holds")).Val() > 0 || s.rdb.ZCard(ctx, key(org, "leases")).Val() > 0 {
				return false
			}
		}
		return true
	})
	want := map[string]int64{}
	for _, r := range l.told {
		want[r.call.Org] += r.actual
		want[r.call.Org+"/"+r.call.User] += r.actual
	}
	wrong := 0
	for id, n := range l.ledger() {
		if r, ok := l.told[id]; n != r.actual || !ok && n != 0 {
			wrong++
			l.t.Errorf("call %s: ledger has %d, the caller was told %d (settled %v)", id, n, r.actual, ok)
			if wrong > 5 {
				break
			}
		}
	}
	if n, sum, _ := l.missing(); n != 0 {
		l.t.Errorf("%d settles over %d are not in the ledger", n, sum)
	}
	wrong = 0
	for who := range l.people {
		org, user, _ := strings.Cut(who, "/")
		list, err := s.Peek(ctx, l.limits(), Call{Org: org, User: user})
		if err != nil {
			l.t.Fatal(err)
		}
		got := []int64{list[0].Used, list[0].Held, list[1].Used, list[1].Held, list[2].Used, list[2].Held, list[3].Used}
		exp := []int64{want[who], 0, want[who], 0, want[org], 0, 0}
		if !slices.Equal(got, exp) {
			l.t.Errorf("%s: used and held %v, want %v", who, got, exp)
			if wrong++; wrong > 5 {
				return
			}
		}
	}
}
