package queue

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Jobs put by one call of the script are each judged by themselves, in their
// order: the same id twice is one job, and one that is too much refuses itself.
func TestJobsPutTogether(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{OrgShare: 50}, Pool{ID: "p", MaxJobs: 4})
	p := e.pools()["p"]
	first, second, third := e.NewID("p"), e.NewID("p"), e.NewID("p")
	enter := func(id, org, tokens string) *entrant {
		return &entrant{ctx: t.Context(), q: e.Queue, p: p, key: jobKey("p", id), args: []any{id, 2, org, "ann", tokens, 5, 1e9, "kkkmmm", "model", "m"}, done: make(chan struct{})}
	}
	batch := []*entrant{
		enter(first, "acme", "10"), enter(first, "acme", "10"), enter(second, "acme", "20"), enter(e.NewID("p"), "acme", "40"), enter(third, "zeta", "80"),
	}
	for range 2 { // the second time as after a lost reply
		p.puts.run(batch)
		for i, want := range []string{"ok ", "ok ", "ok ", "full org_jobs 2 ", "ok "} {
			if b := batch[i]; b.err != nil || !strings.HasPrefix(b.line, want) {
				t.Errorf("job %d: %q %v, want %q", i, b.line, b.err, want)
			}
			batch[i].done = make(chan struct{})
		}
		d, err := e.Depth(t.Context(), "p")
		if err != nil || d.Jobs != 3 || d.Bytes != 15 || d.Waiting[Async] != 3 || d.WaitingTokens[Async] != 110 {
			t.Fatalf("depth %+v, %v", d, err)
		}
	}
	for _, want := range []string{first, third, second} {
		e.claimOne("p", &Job{ID: want})
	}
}

// Jobs put while a ticket is being made share the next one, which comes after
// all of them; and one ticket wakes as many handlers as there is work for.
func TestOneTicketWakesAll(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	w := &e.pools()["p"].waker
	w.awake = true // as if one were being made
	const handlers = 32
	for range 2 * handlers {
		e.put(e.job("p", "acme", "ann", Async, 10))
	}
	pending := func() int64 { return e.rdb.LLen(t.Context(), "asynq:{p}:pending").Val() }
	if n := pending(); n != 0 || !w.again {
		t.Fatalf("%d tickets, another to come: %v", n, w.again)
	}
	w.run(t.Context(), e.Queue, e.pools()["p"])
	if n := pending(); n != 1 || w.awake {
		t.Fatalf("%d tickets, awake %v; want 1 and rest", n, w.awake)
	}
	var running atomic.Int64
	all := make(chan struct{})
	e.run(func(ctx context.Context, c *Claim) Verdict {
		if running.Add(1) == handlers {
			close(all)
		}
		<-all
		return noop(ctx, c)
	}, WorkerOptions{Concurrency: map[string]int{"p": handlers}})
	eventually(t, "all handlers busy at once and the queue empty", func() bool {
		d, err := e.Depth(t.Context(), "p")
		return err == nil && d.Jobs == 0
	})
}

// wakes reports whether a ticket for the pool is being made.
func (e *env) wakes(pool string) bool {
	w := &e.pools()[pool].waker
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.awake || w.again
}

// A job put while handlers stay for it makes no ticket; one put after they have
// gone does.
func TestNoTicketWhileHandlersAreAwake(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	pc := newPacer(e.Queue, e.pools()["p"], 4)
	for _, c := range []struct {
		stay  time.Duration
		wakes bool
	}{{time.Hour, false}, {0, true}} {
		eventually(t, "rests", func() bool { return !e.wakes("p") })
		before := e.rdb.LLen(t.Context(), "asynq:{p}:pending").Val()
		pc.stay = c.stay
		if _, err := pc.acquire(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		e.put(e.job("p", "acme", "ann", Async, 10))
		eventually(t, "rests", func() bool { return !e.wakes("p") })
		if n := e.rdb.LLen(t.Context(), "asynq:{p}:pending").Val(); (n > before) != c.wakes {
			t.Errorf("handlers stay for %s: %d tickets, %d before", c.stay, n, before)
		}
	}
}
