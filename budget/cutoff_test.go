package budget

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// link is a client's connection to Redis. If cut, nothing arrives; if deaf, scripts run but their
// answers are lost.
type link struct{ cut, deaf atomic.Bool }

var errLink = errors.New("the link is down")

func (l *link) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *link) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		pass := l.ProcessPipelineHook(func(ctx context.Context, cmds []redis.Cmder) error { return next(ctx, cmds[0]) })
		return pass(ctx, []redis.Cmder{cmd})
	}
}

func (l *link) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var err error
		if !l.cut.Load() {
			err = next(ctx, cmds)
		}
		if l.cut.Load() || l.deaf.Load() && cmds[0].Name() == "evalsha" {
			for _, cmd := range cmds {
				cmd.SetErr(errLink)
			}
			return errLink
		}
		return err
	}
}

// far returns a process whose connection to Redis can fail, with a journal on disk.
func far(t *testing.T, rdb *redis.Client) (*fixture, *link) {
	own := redis.NewClient(rdb.Options())
	t.Cleanup(func() { _ = own.Close() })
	f, l := newFixture(t, own, Options{}), &link{}
	f.settle(t.Context(), f.hold(t.Context(), cutOffLimits, 1), 0) // loads the scripts
	own.AddHook(l)
	return f, l
}

var cutOffLimits = []Limit{costLimit("day", User, Shape{Kind: Window, Amount: 1_000_000, Window: 24 * time.Hour})}

// twoHours passes two hours with the link cut; the tombstones' key expires.
func twoHours(t *testing.T, f *fixture, l *link, rdb *redis.Client, c ledger.Call) {
	l.cut.Store(true)
	l.deaf.Store(false)
	for range 24 {
		f.pass(5 * time.Minute)
		if left, err := f.Deferred.Replay(t.Context()); left != 1 || err == nil {
			t.Fatalf("%d are left behind a cut link: %v", left, err)
		}
	}
	rdb.Del(t.Context(), ledger.Key(f.org, chunkOf(c)))
	l.cut.Store(false)
	if left, err := f.Deferred.Replay(t.Context()); left != 0 || err != nil {
		t.Fatalf("%d are left: %v", left, err)
	}
}

// books checks the ledger's total and the length of the reconciliation list.
func books(t *testing.T, f *fixture, booked pricing.Nano, listed int) {
	t.Helper()
	sum := pricing.Nano(0)
	err := f.Ledger.Entries(t.Context(), f.org, time.Time{}, time.Time{}, func(e ledger.Entry) error { sum += e.Cost; return nil })
	if err != nil || sum != booked {
		t.Errorf("the ledger adds up to %d, want %d: %v", sum, booked, err)
	}
	list, err := f.Ledger.Reconcile(t.Context(), f.org, 10)
	if err != nil || len(list) != listed {
		t.Errorf("%d are listed, want %d: %v", len(list), listed, err)
	}
}

// TestCutOffChargesNothingTwice: a process that was cut off for longer than endings are remembered
// does not charge a call that may already be charged, by the process that expired its hold or by a
// settle whose answer was lost. The ending is listed for a person to decide.
func TestCutOffChargesNothingTwice(t *testing.T) {
	rdb := shared(t)
	t.Run("expired within a day", func(t *testing.T) {
		f, l := far(t, rdb)
		h, other := f.hold(t.Context(), cutOffLimits, 100), f.hold(t.Context(), cutOffLimits, 100)
		near := New(redistest.DB(rdb), Options{})
		near.clock.fake = f.now.Load
		l.cut.Store(true)
		if err := f.Later(t.Context(), []Settle{{h, &Settlement{Actual: cost(40)}}}, nil); err != nil {
			t.Fatal(err)
		}
		f.pass(2 * time.Minute)
		if n, err := near.Expiry.Sweep(t.Context(), f.org); n != 2 || err != nil {
			t.Fatalf("%d expired, %v", n, err)
		}
		if err := near.Void(t.Context(), other); err != nil { // in the same chunk
			t.Fatal(err)
		}
		if ttl := rdb.PTTL(t.Context(), ledger.Key(f.org, chunkOf(h.Call))).Val(); ttl < 23*time.Hour {
			t.Errorf("what expired is remembered for %s", ttl)
		}
		f.pass(20 * time.Hour)
		l.cut.Store(false)
		if left, err := f.Deferred.Replay(t.Context()); left != 0 || err != nil {
			t.Fatalf("%d are left: %v", left, err)
		}
		books(t, f, 40, 0)
	})
	t.Run("expired", func(t *testing.T) {
		f, l := far(t, rdb)
		h := f.hold(t.Context(), cutOffLimits, 100)
		if err := f.Later(t.Context(), []Settle{{h, &Settlement{Actual: cost(40)}}}, nil); err != nil {
			t.Fatal(err)
		}
		near := New(redistest.DB(rdb), Options{})
		near.clock.fake = f.now.Load
		f.pass(2 * time.Minute)
		if n, err := near.Expiry.Sweep(t.Context(), f.org); n != 1 || err != nil {
			t.Fatalf("%d expired, %v", n, err)
		}
		twoHours(t, f, l, rdb, h.Call)
		books(t, f, 100, 1)
	})
	t.Run("settled", func(t *testing.T) {
		f, l := far(t, rdb)
		e := []Settle{{f.hold(t.Context(), cutOffLimits, 100), &Settlement{Actual: cost(40)}}}
		l.deaf.Store(true)
		if done := f.SettleAll(t.Context(), e); !errors.Is(done[0].Err, ErrUnavailable) {
			t.Fatalf("without an answer: %+v", done)
		}
		if err := f.Later(t.Context(), e, nil); err != nil {
			t.Fatal(err)
		}
		twoHours(t, f, l, rdb, e[0].Hold.Call)
		books(t, f, 40, 1)
	})
	t.Run("admitted without the store, settled", func(t *testing.T) {
		f, l := far(t, rdb)
		h := f.local(t, cutOffLimits)
		e := []Settle{{h, &Settlement{Actual: cost(40)}}}
		l.deaf.Store(true)
		if done := f.SettleAll(t.Context(), e); !errors.Is(done[0].Err, ErrUnavailable) {
			t.Fatalf("without an answer: %+v", done)
		}
		if err := f.Later(t.Context(), e, nil); err != nil {
			t.Fatal(err)
		}
		twoHours(t, f, l, rdb, h.Call)
		books(t, f, 40, 1)
	})
	t.Run("admitted without the store, settled late", func(t *testing.T) {
		f, l := far(t, rdb)
		h := f.local(t, cutOffLimits)
		if err := f.Later(t.Context(), []Settle{{h, &Settlement{Actual: cost(40)}}}, nil); err != nil {
			t.Fatal(err)
		}
		l.deaf.Store(true)
		if left, err := f.Deferred.Replay(t.Context()); left != 1 || err == nil {
			t.Fatalf("%d are left without an answer: %v", left, err)
		}
		twoHours(t, f, l, rdb, h.Call)
		books(t, f, 40, 1)
	})
	t.Run("admitted without the store, never sent", func(t *testing.T) {
		f, l := far(t, rdb)
		h := f.local(t, cutOffLimits)
		if err := f.Later(t.Context(), []Settle{{h, &Settlement{Actual: cost(40)}}}, nil); err != nil {
			t.Fatal(err)
		}
		twoHours(t, f, l, rdb, h.Call)
		books(t, f, 40, 0)
	})
}

// local returns a call that was admitted without the store.
func (f *fixture) local(t *testing.T, limits []Limit) *Hold {
	t.Helper()
	h, err := f.binder.prepare(&Terms{Limits: limits, Call: f.call(), Max: cost(100), Expected: cost(100)})
	if err != nil {
		t.Fatal(err)
	}
	h.without, h.At = true, f.Store.clock.now()
	return h
}
