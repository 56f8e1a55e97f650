package queue

import (
	"net/http"
	"testing"
	"time"

	"github.com/llmguard/llmguard/quota"
)

// TestIdlePoolsTimePasses checks that a pool that is used too rarely to distinguish
// idleness from a clock set ahead still grants its full quota, and that its blocks end.
func TestIdlePoolsTimePasses(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", RPM: 10}, Pool{ID: "blocked"})
	ctx := t.Context()
	take := func(pool, id string) {
		t.Helper()
		g, err := e.Take(ctx, pool, id, Flow{"acme", "ann"}, 10)
		if err != nil {
			t.Errorf("%v", err)
			return
		}
		if err := e.Give(ctx, g, false); err != nil {
			t.Fatal(err)
		}
	}
	for k := range 30 {
		e.at(simStart + time.Duration(k)*5*time.Minute)
		take("p", "call "+itoa(int64(k)))
	}
	e.at(simStart)
	take("blocked", "first")
	if err := e.Block(ctx, "blocked", 3*time.Minute); err != nil {
		t.Fatal(err)
	}
	e.at(simStart + 10*time.Minute)
	take("blocked", "second")
	e.at(simStart + 10*time.Minute + time.Second)
	take("blocked", "third")
}

// TestDeadCallsPlaceEndsInAQuietPool checks that the slot of a live call whose proxy died
// ends with its lease, even if jobs come so rarely that each poll is the first for a long
// time.
func TestDeadCallsPlaceEndsInAQuietPool(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{20 * time.Second, 5 * time.Minute} {
		e := newEnv(t, Options{}, Pool{ID: "p", Concurrency: 3})
		ctx := t.Context()
		e.at(simStart)
		if _, err := e.Take(ctx, "p", "dead", Flow{"acme", "ann"}, 10); err != nil {
			t.Fatal(err)
		}
		for k := range 4 {
			e.at(simStart + time.Duration(k+1)*every)
			c := e.claimOne("p", e.put(e.job("p", "acme", "bob", Async, 10)))
			if err := c.Start(ctx); err != nil {
				t.Fatal(err)
			}
			if err := c.finish(ctx, Succeeded, Verdict{}, ""); err != nil {
				t.Fatal(err)
			}
		}
		if open := e.rdb.ZRange(ctx, e.settings.pools()["p"].keys[1], 0, -1).Val(); len(open) != 0 {
			t.Errorf("a job every %s: %q are still open", every, open)
		}
	}
}

// TestPlaceOfOneWhoLeftForGood checks that a job whose caller has left and whose time is up
// does not wait outside the queue when its attempt is released: nothing would end it there.
func TestPlaceOfOneWhoLeftForGood(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", RPM: 100, MaxAge: 5 * time.Minute})
	ctx := t.Context()
	now := simStart
	e.pass(&now, 0)
	j := e.put(e.job("p", "acme", "ann", Interactive, 10))
	c := e.claimOne("p", j)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Places().Reserve(ctx, "acme", j.ID, 90*time.Second); err != nil {
		t.Fatal(err)
	}
	e.pass(&now, 6*time.Minute) // it runs for longer than its place and its time last
	if err := c.release(ctx, Verdict{Kind: Requeue}, "0"); err != nil {
		t.Fatal(err)
	}
	e.pass(&now, 10*time.Second)
	for _, c := range e.claim("p", 1) {
		_ = c.Start(ctx)
	}
	if d, err := e.Depth(ctx, "p"); err != nil || d.Jobs != 0 {
		t.Errorf("%d jobs, %v, and the state %s; want it ended", d.Jobs, err, e.state(j))
	}
}

// TestNothingBookedNothingBack checks that a job that can never fit under the learned limit
// books no quota and returns none.
func TestNothingBookedNothingBack(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", RPM: 100})
	ctx := t.Context()
	e.at(simStart)
	j := e.put(e.job("p", "acme", "ann", Async, 5000))
	h := http.Header{"X-Ratelimit-Limit-Tokens": {"1000"}, "X-Ratelimit-Remaining-Tokens": {"1000"}, "X-Ratelimit-Reset-Tokens": {"1s"}}
	if _, err := e.Observe(ctx, "p", quota.Head{Model: j.Model, Status: 200, Header: h, Sent: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Take(ctx, "p", "live", Flow{"acme", "bob"}, 20); err != nil {
		t.Fatal(err)
	}
	c := e.claimOne("p", j)
	if c.never != 1000 {
		t.Fatalf("the job may run under a limit of %d, want it refused", c.never)
	}
	if err := c.release(ctx, Verdict{Kind: Requeue, Unused: true}, "0"); err != nil {
		t.Fatal(err)
	}
	if d, err := e.Depth(ctx, "p"); err != nil || d.Rates[0].Used != 1 || d.Rates[1].Used != 20 {
		t.Errorf("%d requests and %d tokens count, %v; want the live call's 1 and 20", d.Rates[0].Used, d.Rates[1].Used, err)
	}
}

// TestFullRedisIsDrained checks that workers continue to take jobs while Redis's memory is
// full.
func TestFullRedisIsDrained(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx := t.Context()
	e.at(simStart)
	e.put(e.job("p", "acme", "ann", Async, 10))
	e.claim("p", 0)
	e.put(e.job("p", "acme", "ann", Async, 10))
	e.at(simStart + 2*time.Second)
	if err := e.rdb.ConfigSet(ctx, "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	got, err := newPacer(e.Queue, e.settings.pools()["p"], 2).acquire(ctx, 2)
	if err != nil || len(got.claims) != 2 {
		t.Errorf("%d claims, %v; want 2", len(got.claims), err)
	}
}
