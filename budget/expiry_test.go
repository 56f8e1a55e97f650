package budget

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
)

// sweeper returns the Store of another process.
func (f *fixture) sweeper() *Store {
	s := New(redistest.DB(f.rdb), Options{Lease: f.opts.Lease})
	s.clock.fake = f.now.Load
	return s
}

// seenForLong marks the store as continuously reachable until now.
func (f *fixture) seenForLong() {
	f.rdb.Set(context.Background(), seenKey, fmt.Sprintf("1,%d", f.now.Load()), 0)
}

func (f *fixture) round(s *Store) {
	f.t.Helper()
	if err := s.Expiry.sweepDue(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// openLeases returns the number of the org's open holds.
func (f *fixture) openLeases() int64 {
	return f.rdb.ZCard(f.t.Context(), ledger.Key(f.org, "leases")).Val()
}

// TestRefusedCallersPutOffNoExpiry: callers that keep retrying and are refused do not keep a dead
// hold from expiring, whichever processes they use.
func TestRefusedCallersPutOffNoExpiry(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, Options{})
		limits := []Limit{costLimit("win", User, hour(100))}
		f.hold(t.Context(), limits, 100) // its process dies
		judge := f.sweeper()
		f.seenForLong()
		for tries := 0; f.openLeases() > 0; tries++ {
			if tries == 8 {
				t.Fatalf("after %s the dead hold is open", time.Duration(tries)*f.opts.Lease/4)
			}
			caller := f.sweeper()
			if _, err := caller.Hold(t.Context(), Terms{Limits: limits, Call: f.call(), Max: cost(1), Expected: cost(1)}); !errors.As(err, new(*ExceededError)) {
				t.Fatalf("hold over the limit: %v", err)
			}
			f.pass(f.opts.Lease / 4)
			f.round(judge)
		}
	})
}

// TestAnnouncedOrgStaysRegistered: an org that is announced while its leases are being checked
// stays in the registry, because the check may have come before the hold.
func TestAnnouncedOrgStaysRegistered(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f, ctx := newFixture(t, rdb, Options{}), t.Context()
		f.leases.announce(ctx, f.org)()
		f.pass(2 * f.opts.Lease)
		judge := f.sweeper()
		due, err := judge.Expiry.orphans(ctx)
		if err != nil || len(due) != 1 {
			t.Fatalf("due are %v, %v", due, err)
		}
		late := f.sweeper()
		late.leases.announce(ctx, f.org)()
		for _, want := range []int64{1, 0} { // the next check finds nothing
			if err := judge.Expiry.sweepOrphan(ctx, due[0]); err != nil {
				t.Fatal(err)
			}
			if n := rdb.ZCard(ctx, Registry).Val(); n != want {
				t.Fatalf("%d orgs are registered, want %d", n, want)
			}
			due, _ = judge.Expiry.orphans(ctx)
		}
	})
}

// TestNoLeaseIsJudgedAfterAGap: no holder is judged dead for time in which the store was
// unreachable. After a gap, or if the store was never seen, it has to be reachable for the length
// of a lease first.
func TestNoLeaseIsJudgedAfterAGap(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, Options{})
		limits := []Limit{
			costLimit("win", User, hour(1000)),
			{ID: "par", Subject: Org, Metric: Concurrency, Shape: Shape{Kind: Concurrent, Amount: 1}},
		}
		h, judge := f.hold(t.Context(), limits, 100), f.sweeper()
		f.seenForLong()
		third := f.opts.Lease / 3
		for _, gap := range []time.Duration{2 * f.opts.Lease, third + time.Millisecond, -2 * f.opts.Lease, 6 * f.opts.Lease} {
			f.pass(gap)
			for range 3 { // of the grace lease
				f.round(judge)
				f.pass(third - time.Millisecond)
			}
			f.used(t.Context(), limits, [2]int64{100, 100}, [2]int64{1, 1})
		}
		f.rdb.Del(t.Context(), seenKey)
		f.round(judge)
		var e *ExceededError
		_, err := judge.Hold(t.Context(), Terms{Limits: limits, Call: f.call(), Max: cost(1), Expected: cost(1)})
		if !errors.As(err, &e) || e.Binding.LimitID != "par" || e.Binding.Wait != time.Second || e.Binding.Never {
			t.Fatalf("a second call under a concurrency of 1: %v", err)
		}
		if err := f.leases.renewDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Extend(t.Context(), h, cost(10)); err != nil {
			t.Fatalf("the hold of a living process cannot grow: %v", err)
		}
		for range 3 {
			f.pass(third)
			f.round(judge)
		}
		f.used(t.Context(), limits, [2]int64{110, 0}, [2]int64{0, 0}) // nothing renewed it
	})
}

// TestNoLeaseIsJudgedAfterAGapOfItsServer: a server that does not answer for an org is a gap for
// that org only.
func TestNoLeaseIsJudgedAfterAGapOfItsServer(t *testing.T) {
	f, ctx := newFixture(t, shared(t), Options{}), t.Context()
	other := newFixture(t, f.rdb, Options{})
	limits := []Limit{costLimit("win", User, hour(1000))}
	f.hold(ctx, limits, 100)
	other.hold(ctx, limits, 100)
	f.pass(2 * f.opts.Lease)
	away := &failOnce{word: "{" + f.org + "}"}
	away.armed.Store(true)
	rdb := redis.NewClient(f.rdb.Options())
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(away)
	f.seenForLong()
	judge := f.sweeper()
	judge.Expiry.rdb = redistest.DB(rdb)
	if err := judge.Expiry.sweepDue(ctx); err == nil {
		t.Fatal("swept without an answer")
	}
	f.round(judge)
	if f.openLeases() != 1 || other.openLeases() != 0 {
		t.Errorf("%d holds are open where the server was away, %d elsewhere", f.openLeases(), other.openLeases())
	}
}
