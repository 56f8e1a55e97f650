package budget

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// start is the tests' first instant: a Wednesday, in the middle of a slot.
var start = time.Date(2026, 11, 18, 10, 20, 30, 123_456_000, time.UTC)

// fixture is a Store with a clock that only the test moves.
type fixture struct {
	*Store
	t   testing.TB
	rdb *redis.Client
	now atomic.Int64
	seq atomic.Int64
	org string
}

var fixtures atomic.Int64

// newFixture returns a store of a fresh org on rdb.
func newFixture(t testing.TB, rdb *redis.Client, o Options) *fixture {
	f := &fixture{Store: New(redistest.DB(rdb), o), t: t, rdb: rdb, org: fmt.Sprintf("org%d", fixtures.Add(1))}
	f.now.Store(start.UnixMicro())
	f.clock.fake = f.now.Load
	return f
}

func (f *fixture) pass(d time.Duration) { f.now.Add(d.Microseconds()) }

// call returns a new call of the fixture's org and of user ann.
func (f *fixture) call() ledger.Call {
	n := int(f.seq.Add(1))
	return ledger.Call{
		ID: idAt(time.UnixMicro(f.now.Load()), n), Org: f.org, User: "ann", Key: "k1",
		Model: "gpt-x", Provider: "openai", Endpoint: "chat.completions",
	}
}

// idAt returns a call id with the given time.
func idAt(at time.Time, n int) string {
	ms := at.UnixMilli()
	var text [10]byte
	for i := 9; i >= 0; i-- {
		text[i] = "0123456789abcdefghjkmnpqrstvwxyz"[ms&31]
		ms >>= 5
	}
	return fmt.Sprintf("%s%016d", text[:], n)
}

// both runs a test on a real Redis and on miniredis.
func both(t *testing.T, test func(t *testing.T, rdb *redis.Client)) {
	t.Run("redis", func(t *testing.T) { test(t, shared(t)) })
	t.Run("miniredis", func(t *testing.T) { test(t, onMiniredis(t)) })
}

// onMiniredis returns a client of a Redis in this process, which only `dev` uses.
func onMiniredis(t *testing.T) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// shared returns a client of a redis-server for the test.
func shared(t testing.TB) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func cost(n int64) Amounts { return Amounts{Cost: pricing.Nano(n)} }

func costLimit(id string, s Subject, shape Shape) Limit {
	return Limit{ID: id, Subject: s, Metric: Cost, Shape: shape}
}

func hour(amount int64) Shape { return Shape{Kind: Window, Amount: amount, Window: time.Hour} }

func (f *fixture) hold(ctx context.Context, limits []Limit, n int64) *Hold {
	f.t.Helper()
	h, err := f.Hold(ctx, Terms{Limits: limits, Call: f.call(), Max: cost(n), Expected: cost(n)})
	if err != nil {
		f.t.Fatalf("hold %d: %v", n, err)
	}
	return h
}

// renew renews the leases of one org's holds.
func (s *Store) renew(ctx context.Context, org string, holds []*Hold) error {
	var err [1]error
	s.leases.renewTogether(ctx, []renewal{{org, holds}}, err[:])
	return err[0]
}

func (f *fixture) settle(ctx context.Context, h *Hold, n int64) Receipt {
	f.t.Helper()
	r, err := f.Settle(ctx, h, Settlement{Actual: cost(n), Outcome: "ok"})
	if err != nil {
		f.t.Fatalf("settle %s: %v", h.ID, err)
	}
	return r
}

// used checks what each limit counts and how much of it is held.
func (f *fixture) used(ctx context.Context, limits []Limit, want ...[2]int64) {
	f.t.Helper()
	list, err := f.Peek(ctx, limits, f.call())
	if err != nil {
		f.t.Fatal(err)
	}
	for i, s := range list {
		if got := [2]int64{s.Used, s.Held}; got != want[i] {
			f.t.Fatalf("limit %s: used, held = %v, want %v", s.LimitID, got, want[i])
		}
	}
}
