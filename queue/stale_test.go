package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/llmguard/llmguard/quota"
)

// prepared claims the job of a pool and simulates a slow preparation.
func (e *env) prepared(now *time.Duration, pool string, took time.Duration) *Claim {
	e.t.Helper()
	c := e.claim(pool, 1)[0]
	c.born = c.born.Add(-took)
	*now += took
	e.at(*now)
	return c
}

// TestStartMakesAnOldGrantFresh checks that a job's booking moves from its claim to its
// start, and again to the time it is sent, so that a slow process can send what it has
// prepared. The total of the minute does not change.
func TestStartMakesAnOldGrantFresh(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", RPM: 60, TPM: 1000})
	now := simStart
	e.at(now)
	e.put(e.job("p", "acme", "alice", Async, 400))
	c := e.prepared(&now, "p", 20*time.Second)
	if c.Permit() == nil {
		t.Error("fresh before it starts, after 20 s")
	}
	if err := c.Start(t.Context()); err != nil || c.Permit() != nil {
		t.Fatalf("start: %v, then %v", err, c.Permit())
	}
	now += 30 * time.Second
	e.at(now)
	c.born = c.born.Add(-30 * time.Second)
	if err := c.Renew(t.Context()); err != nil || c.Permit() != nil || c.Job.Attempt != 1 {
		t.Fatalf("renew: %v, then %v, attempt %d", err, c.Permit(), c.Job.Attempt)
	}
	counts := func(when string, want int64) {
		t.Helper()
		if _, err := e.Take(t.Context(), "p", "c"+when, Flow{"acme", "bob"}, 0); err != nil { // moves the window
			t.Fatal(err)
		}
		if d, err := e.Depth(t.Context(), "p"); err != nil || d.Rates[1].Used != want {
			t.Errorf("%s: %d tokens in the window, %v; want %d", when, d.Rates[1].Used, err, want)
		}
	}
	counts("when sent", 400)
	now += 59 * time.Second
	e.at(now)
	counts("59 s after it was sent, 109 s after it was claimed", 400)
	now += 3 * time.Second
	e.at(now)
	counts("62 s after it was sent", 0)
}

// TestStartOfAnOldGrantObeysTheProvider checks that an old booking does not bypass a block.
func TestStartOfAnOldGrantObeysTheProvider(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", RPM: 60})
	now := simStart
	e.at(now)
	j := e.put(e.job("p", "acme", "alice", Async, 10))
	c := e.prepared(&now, "p", 2*time.Second)
	if err := e.Block(t.Context(), "p", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); !errors.Is(err, errNoQuota) {
		t.Errorf("start while the provider is closed: %v", err)
	}
	if err := c.conclude(t.Context(), Verdict{Kind: Requeue, Unused: true}); err != nil || e.state(j) != Queued {
		t.Errorf("%v, the job is %s", err, e.state(j))
	}
}

// TestGrantOfAFreePoolDoesNotAge checks that a pool without quota has no stale grants.
func TestGrantOfAFreePoolDoesNotAge(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", Concurrency: 2})
	now := simStart
	e.at(now)
	e.put(e.job("p", "acme", "alice", Async, 10))
	c := e.prepared(&now, "p", 2*time.Second)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.born = c.born.Add(-time.Hour)
	g, err := e.Take(t.Context(), "p", "live", Flow{"acme", "bob"}, 10)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(quota.GrantLife + time.Millisecond)
	if c.Permit() != nil || g.Permit() != nil {
		t.Errorf("after an hour, and half a second: the job %v, the live call %v", c.Permit(), g.Permit())
	}
}
