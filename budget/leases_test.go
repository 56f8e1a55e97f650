package budget

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
)

// live returns a store for Run. Leases end by a clock that only the test moves, so that no hold
// expires while the machine is busy; Run checks them in real time.
func live(t *testing.T, rdb *redis.Client, org string) *fixture {
	f := newFixture(t, rdb, Options{Lease: 300 * time.Millisecond})
	if org != "" {
		f.org = org
	}
	return f
}

// run runs f until the returned function is called.
func (f *fixture) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	return func() {
		cancel()
		if err := redistest.Came(t, done); !errors.Is(err, context.Canceled) {
			t.Errorf("run ended with %v", err)
		}
	}
}

// passSeen advances the clock by part of a lease in which other running stores reach the store.
func (f *fixture) passSeen(others ...*fixture) {
	f.t.Helper()
	for _, o := range others {
		f.now.Store(max(f.now.Load(), o.now.Load()))
	}
	f.pass(f.opts.Lease / 4)
	for _, o := range others {
		o.now.Store(f.now.Load())
	}
	redistest.Eventually(f.t.(*testing.T), "the store is seen", func() bool {
		return strings.HasSuffix(f.rdb.Get(f.t.Context(), seenKey).Val(), fmt.Sprintf(",%d", f.now.Load()))
	})
}

// TestRunRenewsAndExpires: a hold lasts as long as its process and no longer. When the process
// dies, any other process expires it, even one that never used the org.
func TestRunRenewsAndExpires(t *testing.T) {
	rdb := shared(t)
	ctx := t.Context()
	limits := []Limit{
		costLimit("win", User, hour(1000)),
		{ID: "par", Subject: Org, Metric: Concurrency, Shape: Shape{Kind: Concurrent, Amount: 1}},
	}
	a := live(t, rdb, "")
	stop := a.run(t)
	h := a.hold(ctx, limits, 100)
	for range 4 { // more than two leases in total
		a.pass(a.opts.Lease * 2 / 3)
		redistest.Eventually(t, "a renewal", func() bool {
			ends := rdb.ZScore(ctx, ledger.Key(a.org, "leases"), h.ID).Val()
			return int64(ends) == a.now.Load()+a.opts.Lease.Microseconds()
		})
	}
	a.used(ctx, limits, [2]int64{100, 100}, [2]int64{1, 1})
	stop() // the process dies

	b := live(t, rdb, "elsewhere")
	defer b.run(t)()
	for range 9 {
		a.passSeen(b)
	}
	redistest.Eventually(t, "expiry by another process", func() bool {
		list, err := b.Peek(ctx, limits, h.Call)
		return err == nil && list[0].Held == 0 && list[1].Used == 0
	})
	a.used(ctx, limits, [2]int64{100, 0}, [2]int64{0, 0})

	r := a.settle(ctx, h, 30) // it was only slow
	if !r.Late || r.Charged != 30 {
		t.Fatalf("late settle: %+v", r)
	}
	a.used(ctx, limits, [2]int64{30, 0}, [2]int64{0, 0})
	redistest.Eventually(t, "the org off the registry", func() bool {
		return errors.Is(rdb.ZScore(ctx, Registry, a.org).Err(), redis.Nil)
	})
}

// TestExpiresBesideLiveHolds: a dead process's hold expires although another process keeps the org
// busy.
func TestExpiresBesideLiveHolds(t *testing.T) {
	rdb := shared(t)
	ctx := t.Context()
	limits := []Limit{costLimit("win", User, hour(1000))}
	dead := live(t, rdb, "")
	abandoned := dead.hold(ctx, limits, 100)
	alive := live(t, rdb, dead.org)
	defer alive.run(t)()
	alive.seq.Store(1000)
	h := alive.hold(ctx, limits, 10)
	for range 7 {
		alive.passSeen()
		redistest.Eventually(t, "a renewal", func() bool {
			ends := rdb.ZScore(ctx, ledger.Key(alive.org, "leases"), h.ID).Val()
			return int64(ends) == alive.now.Load()+alive.opts.Lease.Microseconds()
		})
	}
	redistest.Eventually(t, "expiry", func() bool {
		return errors.Is(rdb.ZScore(ctx, ledger.Key(alive.org, "leases"), abandoned.ID).Err(), redis.Nil)
	})
	alive.used(ctx, limits, [2]int64{110, 10})
	alive.settle(ctx, h, 10)
	alive.used(ctx, limits, [2]int64{110, 0})
}

func TestEveryKeyHasALifetime(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{Lease: time.Minute})
		limits := newHistory(ctx, f, func(int) int { return 0 }).limits
		h := f.hold(ctx, limits, 10)
		f.hold(ctx, limits, 10)
		f.settle(ctx, h, 20)
		f.pass(3 * time.Minute)
		if _, err := f.Expiry.Sweep(ctx, f.org); err != nil {
			t.Fatal(err)
		}
		f.pass(3 * time.Hour)
		old := f.call()
		f.hold(ctx, limits, 1)
		f.pass(3 * time.Hour)
		_, err := f.Settle(ctx, &Hold{ID: old.HoldID(), Call: old}, Settlement{Actual: cost(5)})
		if !errors.Is(err, ErrTooOld) {
			t.Fatalf("settle after the horizon: %v", err)
		}
		list, err := f.Ledger.Reconcile(ctx, f.org, 10)
		if err != nil || len(list) != 1 || list[0].ID != old.ID || list[0].Cost != 5 {
			t.Fatalf("reconciliation list: %+v, %v", list, err)
		}
		keys := rdb.Keys(ctx, "*").Val()
		if len(keys) < 10 {
			t.Fatalf("only %d keys: %v", len(keys), keys)
		}
		for _, k := range keys {
			if ttl := rdb.PTTL(ctx, k).Val(); ttl <= 0 {
				t.Errorf("%s lives for ever", k)
			}
		}
	})
}

// TestEveryHoldProlongsItsKeys: holds that are not renewed extend the lifetime of their keys.
func TestEveryHoldProlongsItsKeys(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx, f := t.Context(), newFixture(t, rdb, Options{})
		limits := []Limit{costLimit("month", Org, Shape{Kind: Calendar, Amount: 1e12, Calendar: "month"})}
		keys := []string{ledger.Key(f.org, "holds"), ledger.Key(f.org, "leases")}
		life := 50 * time.Hour
		for range 2 {
			if _, err := f.Hold(ctx, Terms{Limits: limits, Call: f.call(), Max: cost(1), Expected: cost(1), Life: life}); err != nil {
				t.Fatal(err)
			}
			for _, k := range keys {
				if ttl := rdb.PTTL(ctx, k).Val(); ttl < 30*24*time.Hour {
					t.Errorf("a hold for %s is in %s, which lives %s", life, k, ttl)
				}
				rdb.PExpire(ctx, k, 12*time.Hour) // 31 days of such holds
			}
		}
	})
}

// TestSettleOfLostHold: a hold that the store has lost is charged in full, once.
func TestSettleOfLostHold(t *testing.T) {
	rdb := shared(t)
	ctx := t.Context()
	f := newFixture(t, rdb, Options{})
	limits := []Limit{costLimit("win", User, hour(1000)), costLimit("org", Org, Shape{Kind: Bucket, Amount: 1000})}
	h := f.hold(ctx, limits, 100)
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		r := f.settle(ctx, h, 70)
		if r.Charged != 70 || r.Overrun != 0 || r.Replayed != (i == 1) {
			t.Fatalf("settle %d: %+v", i, r)
		}
	}
	f.used(ctx, limits, [2]int64{70, 0}, [2]int64{70, 0})
	if _, err := f.Hold(ctx, Terms{Limits: limits, Call: h.Call, Max: cost(1), Expected: cost(1)}); !errors.Is(err, ErrEnded) {
		t.Fatalf("hold after its settle: %v", err)
	}
}

// TestReset: a reset drops charges and keeps holds; nothing can be given back twice.
func TestReset(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		for _, l := range []Limit{
			costLimit("win", User, hour(1000)),
			costLimit("exact", User, Shape{Kind: ExactWindow, Amount: 1000, Window: time.Minute}),
			costLimit("buck", User, Shape{Kind: Bucket, Amount: 1000, Refill: 1, Per: time.Hour}),
			costLimit("cal", User, Shape{Kind: Calendar, Amount: 1000, Calendar: "week"}),
		} {
			limits := []Limit{l}
			f.settle(ctx, f.hold(ctx, limits, 300), 300)
			h := f.hold(ctx, limits, 200)
			f.used(ctx, limits, [2]int64{500, 200})
			if err := f.Reset(ctx, l, h.Call); err != nil {
				t.Fatal(err)
			}
			for _, k := range rdb.Keys(ctx, ledger.Key(f.org, "l:*")).Val() {
				if ttl := rdb.PTTL(ctx, k).Val(); ttl <= 0 {
					t.Errorf("%s lives for ever after a reset", k)
				}
			}
			f.used(ctx, limits, [2]int64{200, 200})
			f.settle(ctx, h, 50)
			f.used(ctx, limits, [2]int64{50, 0})
		}
	})
}

// TestAttemptsAreFenced: each attempt of a call has its own hold; the late end of the first does
// not affect the second.
func TestAttemptsAreFenced(t *testing.T) {
	rdb := shared(t)
	ctx := t.Context()
	f := newFixture(t, rdb, Options{})
	limits := []Limit{costLimit("win", User, hour(1000))}
	c := f.call()
	first, err := f.Hold(ctx, Terms{Limits: limits, Call: c, Max: cost(100), Expected: cost(100)})
	if err != nil {
		t.Fatal(err)
	}
	c.Attempt = 1
	second, err := f.Hold(ctx, Terms{Limits: limits, Call: c, Max: cost(100), Expected: cost(100)})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Void(ctx, first); err != nil {
		t.Fatal(err)
	}
	f.used(ctx, limits, [2]int64{100, 100})
	if r := f.settle(ctx, second, 60); r.Replayed {
		t.Fatalf("receipt %+v", r)
	}
	f.used(ctx, limits, [2]int64{60, 0})
}

// registerGate keeps the script register from answering until it is opened.
type registerGate struct {
	redis.Hook
	hash   string
	came   chan struct{}
	opened chan struct{}
	t      *testing.T
}

func (g *registerGate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *registerGate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g *registerGate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == g.hash {
			g.came <- struct{}{}
			redistest.Came(g.t, g.opened)
		}
		return next(ctx, cmd)
	}
}

// TestHoldsWaitForTheRegistry: a hold does not end before its org is in the registry, even if
// another hold has begun the entry.
func TestHoldsWaitForTheRegistry(t *testing.T) {
	f := newFixture(t, shared(t), Options{})
	g := &registerGate{hash: f.leases.runner.scripts.register.Hash(), came: make(chan struct{}, 10), opened: make(chan struct{}), t: t}
	f.rdb.AddHook(g)
	first, second := f.leases.announce(t.Context(), f.org), f.leases.announce(t.Context(), f.org)
	redistest.Came(t, g.came)
	done := make(chan bool)
	for _, wait := range []func(){first, second} {
		go func() {
			wait()
			done <- f.rdb.ZScore(t.Context(), Registry, f.org).Err() == nil
		}()
	}
	select {
	case <-done:
		t.Error("a hold ended before the entry")
		go func() { done <- true }()
	case <-time.After(50 * time.Millisecond):
	}
	close(g.opened)
	for range 2 {
		if !redistest.Came(t, done) {
			t.Error("the org is not in the registry")
		}
	}
	if n := len(g.came); n != 0 {
		t.Errorf("the org was entered %d more times", n)
	}
}
