package queue

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// lapse advances the clock to a time while a worker polls once a second.
func (e *env) lapse(pool string, till time.Duration) {
	e.t.Helper()
	us, err := strconv.ParseInt(e.scripts.clock, 10, 64)
	if err != nil {
		e.t.Fatal(err)
	}
	pc := newPacer(e.Queue, e.settings.pools()[pool], 1)
	for now := time.Duration(us) * time.Microsecond; now < till; {
		now = min(now+time.Second, till)
		e.at(now)
		if _, err := pc.acquire(e.t.Context(), 0); err != nil {
			e.t.Fatal(err)
		}
	}
}

// After a gap in which no worker could renew a claim, every claim gets one more lease
// because its worker may be alive. A worker that does not renew within it is dead.
func TestAClaimOutlivesAGap(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", Concurrency: 1})
	ctx, lease := t.Context(), e.opts.Lease
	e.at(simStart)
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	c := e.claimOne("p", j)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	now := simStart + time.Hour // Redis was unavailable, or its memory full
	e.at(now)
	if got := e.claim("p", 1); len(got) != 0 {
		t.Fatalf("claimed %d jobs, the lease of which ended while nobody could renew it", len(got))
	}
	e.lapse("p", now+lease-time.Second)
	if letters, err := e.scripts.renew(ctx, c.p, []any{c.id, c.token}); err != nil || letters != "k" {
		t.Fatalf("renewed %q, %v", letters, err)
	}
	now += 2*lease - 2*time.Second
	if e.lapse("p", now); len(e.claim("p", 1)) != 0 {
		t.Fatal("claimed a job whose lease was renewed")
	}
	e.lapse("p", now+2*time.Second)
	if heir := e.claimOne("p", j); heir.Job.Attempt != 1 {
		t.Errorf("the heir has attempt %d before it", heir.Job.Attempt)
	}
}

// A worker that renews its claims after a gap does not hide the gap for another worker's
// claims.
func TestRenewalDoesNotHideAGap(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", Concurrency: 2})
	ctx := t.Context()
	e.at(simStart)
	var claims []*Claim
	for range 2 {
		c := e.claimOne("p", e.put(e.job("p", "acme", "ann", Async, 10)))
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		claims = append(claims, c)
	}
	e.at(simStart + 70*time.Second)
	first := claims[0]
	if letters, err := e.scripts.renew(ctx, first.p, []any{first.id, first.token}); err != nil || letters != "k" {
		t.Fatalf("renewed %q, %v", letters, err)
	}
	e.at(simStart + 71*time.Second)
	if got := e.claim("p", 2); len(got) != 0 {
		t.Errorf("claimed %d jobs, want none: the other worker could not renew either", len(got))
	}
}

// Full memory does not prevent the renewal of claims and grants.
func TestFullMemoryLetsLeasesBeRenewed(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", Concurrency: 2})
	ctx := t.Context()
	e.at(simStart)
	c := e.claimOne("p", e.put(e.job("p", "acme", "ann", Async, 10)))
	g, err := e.Take(ctx, "p", "call", Flow{"acme", "ann"}, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.rdb.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	now := simStart + e.opts.Lease/3
	e.at(now)
	if letters, err := e.scripts.renew(ctx, c.p, []any{c.id, c.token}); err != nil || letters != "k" {
		t.Errorf("renewed %q, %v", letters, err)
	}
	e.Quota().Step(ctx)
	for key, id := range map[string]string{c.p.keys[1]: g.ID, c.p.keys[2]: c.id} {
		if end := time.Duration(e.rdb.ZScore(ctx, key, id).Val()) * time.Microsecond; end != now+e.opts.Lease {
			t.Errorf("the lease of %s in %s ends %v after its renewal", id, key, end-now)
		}
	}
}

// A run continues while Redis is unavailable for longer than its lease, and is the only
// one.
func TestARunOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	const lease = 500 * time.Millisecond
	e := newEnv(t, Options{Lease: lease}, Pool{ID: "p"})
	var starts, stopped atomic.Int64
	e.run(func(ctx context.Context, c *Claim) Verdict {
		if c.Start(ctx) != nil {
			return Verdict{Kind: Requeue, Unused: true}
		}
		starts.Add(1)
		e.rdb.Do(context.WithoutCancel(ctx), "client", "pause", (5 * lease).Milliseconds(), "all")
		for e.rdb.Ping(context.WithoutCancel(ctx)).Err() != nil { // answered when the pause is over
		}
		select {
		case <-ctx.Done():
			stopped.Add(1)
		case <-time.After(lease): // time for another worker to take the job
		}
		return Verdict{Kind: Done, Status: 200}
	}, WorkerOptions{})
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	redistest.Eventually(t, "job ended", func() bool { return e.state(j).Terminal() })
	if starts.Load() != 1 || stopped.Load() != 0 || e.state(j) != Succeeded {
		t.Errorf("started %d times, stopped %d times, then %s", starts.Load(), stopped.Load(), e.state(j))
	}
}
