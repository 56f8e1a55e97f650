package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/llmguard/llmguard/wire"
)

func TestCancelWaitingAndRunning(t *testing.T) {
	e := newEnv(t, Options{Lease: 10 * time.Minute}, Pool{ID: "p"}) // told, not found by a renewal
	ctx := t.Context()
	waiting := e.put(e.job("p", "acme", "ann", Async, 10))
	if _, err := e.Cancel(ctx, "other", waiting.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("cancel by another org: %v", err)
	}
	if s := e.state(waiting); s != Queued {
		t.Errorf("another org's cancel left it %s", s)
	}
	if got, err := e.Cancel(ctx, "acme", waiting.ID); err != nil || got.State != Cancelled {
		t.Fatalf("cancel of a waiting job: %+v, %v", got, err)
	}
	if got := e.claim("p", 1); len(got) != 0 {
		t.Fatal("a cancelled job was claimed")
	}
	claimed := e.put(e.job("p", "acme", "ann", Async, 10))
	c := e.claimOne("p", claimed)
	if got, err := e.Cancel(ctx, "acme", claimed.ID); err != nil || got.State.Terminal() {
		t.Fatalf("cancel of a claimed job: %+v, %v", got, err)
	}
	if err := c.Start(ctx); !errors.Is(err, ErrGone) || e.state(claimed) != Cancelled {
		t.Errorf("start of a cancelled job: %v, %s", err, e.state(claimed))
	}

	began := make(chan struct{})
	e.run(func(ctx context.Context, c *Claim) Verdict {
		if err := c.Start(ctx); err != nil {
			t.Error(err)
		}
		close(began)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), ErrCancelled) {
			t.Errorf("cause %v", context.Cause(ctx))
		}
		return Verdict{Kind: Cancel, Charged: 3}
	}, WorkerOptions{})
	running := e.put(e.job("p", "acme", "ann", Async, 10))
	<-began
	if _, err := e.Cancel(ctx, "acme", running.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "running job cancelled", func() bool { return e.state(running) == Cancelled })
	if got, _ := e.Job(ctx, "acme", running.ID); got.Charged != 3 || got.Code != "cancelled" {
		t.Errorf("job is %+v", got)
	}
}

func TestPresenceAndDeadline(t *testing.T) {
	e := newEnv(t, Options{}, Pool{ID: "p", MaxAge: time.Minute, RPM: 100})
	ctx := t.Context()
	now := simStart
	e.at(now)
	left := e.put(e.job("p", "acme", "ann", Interactive, 10))
	watched := e.put(e.job("p", "acme", "ann", Interactive, 10))
	aged := e.put(e.job("p", "acme", "ann", Async, 10))
	w := e.Watch(ctx, watched)
	now += 14 * time.Second
	e.at(now)
	e.renewPresence(ctx)
	now += 3 * time.Second
	e.at(now)
	c := e.claimOne("p", left)
	if err := c.Start(ctx); !errors.Is(err, ErrGone) {
		t.Errorf("start of a job whose caller left: %v", err)
	}
	if got, _ := e.Job(ctx, "acme", left.ID); got.State != Cancelled || got.Code != "caller_gone" {
		t.Errorf("left job is %s, %s", got.State, got.Code)
	}
	w.Close(ctx, 30*time.Second)
	now += 20 * time.Second
	e.at(now)
	e.endOverdue(ctx)
	if s := e.state(watched); s != Queued {
		t.Errorf("kept place is %s", s)
	}
	now += 15 * time.Second
	e.at(now)
	e.endOverdue(ctx)
	if s := e.state(watched); s != Cancelled {
		t.Errorf("abandoned job is %s", s)
	}
	now += 30 * time.Second
	e.at(now)
	e.endOverdue(ctx)
	if s := e.state(aged); s != Expired {
		t.Errorf("old job is %s", s)
	}
}

func TestListPages(t *testing.T) {
	e := newEnv(t, Options{}, Pool{ID: "p"}, Pool{ID: "p2"})
	var ids []string
	for i := range 5 {
		pool, user := "p", "ann"
		if i%2 == 1 {
			pool, user = "p2", "bob"
		}
		ids = append([]string{e.put(e.job(pool, "acme", user, Async, 1)).ID}, ids...)
		time.Sleep(2 * time.Millisecond)
	}
	e.put(e.job("p", "other", "ann", Async, 1))
	var got []string
	after := ""
	for {
		jobs, more, err := e.List(t.Context(), "acme", "", after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range jobs {
			got = append(got, j.ID)
			after = j.ID
		}
		if !more {
			break
		}
	}
	if len(got) != 5 {
		t.Fatalf("listed %d", len(got))
	}
	for i := range got {
		if got[i] != ids[i] {
			t.Errorf("place %d: %s, want %s", i, got[i], ids[i])
		}
	}
	jobs, _, err := e.List(t.Context(), "acme", "bob", "", 10)
	if err != nil || len(jobs) != 2 {
		t.Errorf("bob's: %d jobs, %v", len(jobs), err)
	}
	if _, err := e.Job(t.Context(), "other", ids[0]); !errors.Is(err, ErrNotFound) {
		t.Errorf("foreign job: %v", err)
	}
	for _, id := range []string{"", "job_x", "job_" + poolCode("nope") + wire.NewCallID(), ids[0] + "x"} {
		if _, err := e.Job(t.Context(), "acme", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("job %q: %v", id, err)
		}
	}
}
