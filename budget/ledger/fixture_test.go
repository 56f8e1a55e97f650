package ledger_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

var server *redistest.Server

// TestMain lets the test binary act as the exporter that TestExportKilled kills.
func TestMain(m *testing.M) {
	if addr := os.Getenv("LEDGER_TEST_EXPORT"); addr != "" {
		exportUntilKilled(addr, os.Getenv("LEDGER_TEST_DIR"), os.Getenv("LEDGER_TEST_ORG"))
	}
	randtest.Checks(30, 3000)
	randtest.Rapid()
	goleak.VerifyTestMain(packageServer{m}, redistest.IgnoreDials())
}

// packageServer runs the tests beside the server that they share.
type packageServer struct{ m *testing.M }

func (s packageServer) Run() int { return redistest.ForPackage(s.m, &server) }

// start is the first instant of tests that move the clock: a Wednesday.
var start = time.Date(2026, 11, 18, 10, 20, 30, 123_456_000, time.UTC)

// fixture is a store with a fresh org.
type fixture struct {
	*budget.Store
	t   testing.TB
	rdb *redis.Client
	org string
	now *atomic.Int64 // in us; 0: Redis's time
}

var orgs, calls atomic.Int64

func newFixture(t testing.TB, rdb *redis.Client, o budget.Options) *fixture {
	return &fixture{Store: budget.New(redistest.DB(rdb), o), t: t, rdb: rdb, org: fmt.Sprintf("org%d", orgs.Add(1)), now: &atomic.Int64{}}
}

// newStill is newFixture with a clock that only the test moves.
func newStill(t testing.TB, rdb *redis.Client, o budget.Options) *fixture {
	var now atomic.Int64
	now.Store(start.UnixMicro())
	o.Now = func() time.Time { return time.UnixMicro(now.Load()) }
	f := newFixture(t, rdb, o)
	f.now = &now
	return f
}

func (f *fixture) pass(d time.Duration) { f.now.Add(d.Microseconds()) }

// both runs a test on a real Redis and on miniredis, which only `dev` uses.
func both(t *testing.T, test func(t *testing.T, rdb *redis.Client)) {
	t.Run("redis", func(t *testing.T) { test(t, shared(t)) })
	t.Run("miniredis", func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		test(t, rdb)
	})
}

// shared returns a client of the package's redis-server.
func shared(t testing.TB) *redis.Client {
	t.Helper()
	rdb := server.Client()
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// call returns a new call of user ann.
func (f *fixture) call() ledger.Call {
	at := time.Now()
	if n := f.now.Load(); n != 0 {
		at = time.UnixMicro(n)
	}
	return ledger.Call{
		ID: wire.DerivedCallID(at, fmt.Sprint(calls.Add(1))), Org: f.org, User: "ann", Key: "k1", Model: "gpt-x", Provider: "openai",
		Endpoint: "chat.completions",
	}
}

func (f *fixture) hold(ctx context.Context, most int64) *budget.Hold {
	f.t.Helper()
	h, err := f.Hold(ctx, budget.Terms{Call: f.call(), Max: budget.Amounts{Cost: pricing.Nano(most)}})
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

func (f *fixture) settle(ctx context.Context, h *budget.Hold, cost int64) {
	f.t.Helper()
	_, err := f.Settle(ctx, h, budget.Settlement{Actual: budget.Amounts{Cost: pricing.Nano(cost)}, Outcome: "ok"})
	if err != nil {
		f.t.Fatal(err)
	}
}

// charge adds n entries to the ledger and returns their ids.
func (f *fixture) charge(n int) []string {
	f.t.Helper()
	var ids []string
	for range n {
		h := f.hold(f.t.Context(), 5)
		f.settle(f.t.Context(), h, 5)
		ids = append(ids, h.Call.ID)
	}
	return ids
}

// total adds up the sums of the days around now.
func (f *fixture) total() (all ledger.Sums) {
	f.t.Helper()
	now := time.UnixMicro(f.now.Load())
	days, err := f.Ledger.Rollups(f.t.Context(), f.org, now.Add(-24*time.Hour), now.Add(time.Second))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range days {
		all.Add(days[i].Sums)
	}
	return all
}
