package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

func TestCancelWaitingAndRunning(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Lease: 10 * time.Minute}, Pool{ID: "p"}) // so that no renewal reports the cancel
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
		return Verdict{Kind: Cancel}
	}, WorkerOptions{})
	running := e.put(e.job("p", "acme", "ann", Async, 10))
	redistest.Came(t, began)
	if _, err := e.Cancel(ctx, "acme", running.ID); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "running job cancelled", func() bool { return e.state(running) == Cancelled })
	if got, _ := e.Job(ctx, "acme", running.ID); got.Code != "cancelled" {
		t.Errorf("job is %+v", got)
	}
}

// A cancel while a worker holds the job takes effect however the claim is returned, and
// even if it never is.
func TestCancelOfAClaim(t *testing.T) {
	t.Parallel()
	hour := Verdict{Kind: Park, Wait: time.Hour, Unused: true}
	for name, comeBack := range map[string]func(e *env, c, other *Claim){
		"parked":   func(e *env, c, _ *Claim) { _ = c.conclude(e.t.Context(), hour) },
		"requeued": func(e *env, c, _ *Claim) { _ = c.conclude(e.t.Context(), Verdict{Kind: Requeue, Unused: true}) },
		"started":  func(e *env, c, _ *Claim) { _ = c.Start(e.t.Context()) },
		"no verdict": func(e *env, c, _ *Claim) {
			_ = c.conclude(e.t.Context(), Verdict{Wait: time.Second})
		},
		"dead worker, parked flow": func(e *env, _, other *Claim) {
			if err := other.conclude(e.t.Context(), hour); err != nil {
				e.t.Fatal(err)
			}
			e.lapse("p", simStart+e.opts.Lease+time.Second)
			if got := e.claim("p", 1); len(got) != 0 { // this reaps the dead claim
				e.t.Fatalf("claimed %s of a parked flow", got[0].id)
			}
			e.endings.endOverdue(e.t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, Options{}, Pool{ID: "p"})
			ctx := t.Context()
			e.at(simStart)
			j := e.put(e.job("p", "acme", "ann", Async, 10))
			other := e.put(e.job("p", "acme", "ann", Async, 10))
			c, d := e.claimOne("p", j), e.claimOne("p", other)
			if got, err := e.Cancel(ctx, "acme", j.ID); err != nil || got.State.Terminal() || !got.Cancelling {
				t.Fatalf("cancel of a claimed job: %+v, %v", got, err)
			}
			if got, err := e.Job(ctx, "acme", other.ID); err != nil || got.Cancelling {
				t.Fatalf("the other job: %+v, %v", got, err)
			}
			comeBack(e, c, d)
			got, err := e.Job(ctx, "acme", j.ID)
			if err != nil || got.State != Cancelled || got.Cancelling || got.Code != "cancelled" {
				t.Errorf("job is %+v, %v", got, err)
			}
			if n := e.rdb.HLen(ctx, e.settings.pools()["p"].keys[10]).Val(); n != 0 {
				t.Errorf("%d cancels still asked for", n)
			}
		})
	}
}

// Ended returns the final state of a job that its worker returns after a cancel, and the
// current state if there is no time left.
func TestEnded(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Lease: 10 * time.Minute}, Pool{ID: "p"})
	claimed, back := make(chan struct{}), make(chan struct{})
	e.run(func(ctx context.Context, _ *Claim) Verdict {
		close(claimed)
		redistest.Came(t, back)
		return Verdict{Kind: Park, Wait: time.Hour, Unused: true}
	}, WorkerOptions{})
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	redistest.Came(t, claimed)
	j, err := e.Cancel(t.Context(), "acme", j.ID)
	if err != nil {
		t.Fatal(err)
	}
	none, stop := context.WithCancel(t.Context())
	stop()
	if got, err := e.Ended(none, j); err != nil || got.State != Queued || !got.Cancelling {
		t.Errorf("without time: %+v, %v", got, err)
	}
	close(back)
	if got, err := e.Ended(t.Context(), j); err != nil || got.State != Cancelled {
		t.Errorf("job is %+v, %v", got, err)
	}
}

func TestPresenceAndDeadline(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", MaxAge: time.Minute, RPM: 100})
	ctx := t.Context()
	now := simStart
	pass := func(d time.Duration) { e.pass(&now, d) }
	pass(0)
	left := e.put(e.job("p", "acme", "ann", Interactive, 10))
	watched := e.put(e.job("p", "acme", "ann", Interactive, 10))
	aged := e.put(e.job("p", "acme", "ann", Async, 10))
	w := e.Watch(ctx, watched)
	pass(14 * time.Second)
	if err := e.presence.renewPresence(ctx); err != nil {
		t.Fatal(err)
	}
	now += 3 * time.Second
	e.at(now)
	c := e.claimOne("p", left)
	if err := c.Start(ctx); !errors.Is(err, ErrGone) {
		t.Errorf("start of a job whose caller left: %v", err)
	}
	if got, _ := e.Job(ctx, "acme", left.ID); got.State != Cancelled || got.Code != "caller_gone" {
		t.Errorf("left job is %s, %s", got.State, got.Code)
	}
	if state, err := e.Places().Reserve(ctx, "acme", watched.ID, 30*time.Second); err != nil || state != Queued {
		t.Errorf("reserved: %s, %v", state, err)
	}
	w.Close()
	pass(20 * time.Second)
	if s := e.state(watched); s != Queued {
		t.Errorf("kept place is %s", s)
	}
	pass(15 * time.Second)
	if s := e.state(watched); s != Cancelled {
		t.Errorf("abandoned job is %s", s)
	}
	pass(30 * time.Second)
	if s := e.state(aged); s != Expired {
		t.Errorf("old job is %s", s)
	}
}

// pass lets time go by while checking for overdue jobs.
func (e *env) pass(now *time.Duration, d time.Duration) {
	e.t.Helper()
	for till := *now + d; ; {
		e.at(*now)
		e.endings.endOverdue(e.t.Context())
		if *now >= till {
			return
		}
		*now += min(2*time.Second, till-*now)
	}
}

// Return lets a job wait beyond its deadline but not beyond its pool's MaxAge, and brings a
// caller back. It finds neither another org's jobs nor ended ones.
func TestReturn(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", MaxAge: time.Minute})
	ctx := t.Context()
	e.at(simStart)
	j := e.job("p", "acme", "ann", Interactive, 10)
	j.Deadline = time.Now().Add(10 * time.Second)
	e.put(j)
	e.at(simStart + 5*time.Second)
	if _, err := e.Places().Return(ctx, "other", j.ID, time.Hour, time.Hour); !errors.Is(err, ErrNotFound) {
		t.Errorf("return by another org: %v", err)
	}
	e.rdb.ZRem(ctx, e.settings.pools()["p"].keys[8], j.ID) // its caller had left it running
	if _, err := e.Places().Return(ctx, "acme", j.ID, time.Hour, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Places().Return(ctx, "acme", j.ID, time.Second, time.Second); err != nil { // shortens nothing
		t.Fatal(err)
	}
	e.at(simStart + 20*time.Second)
	if e.endings.endOverdue(ctx); e.state(j) != Queued {
		t.Errorf("the job is %s", e.state(j))
	}
	if _, err := e.Places().Return(ctx, "acme", j.ID, time.Hour, time.Hour); err != nil {
		t.Fatal(err)
	}
	e.at(simStart + 61*time.Second)
	if e.endings.endOverdue(ctx); e.state(j) != Expired {
		t.Errorf("the job is %s", e.state(j))
	}
	if got, err := e.Places().Return(ctx, "acme", j.ID, time.Hour, time.Hour); err != nil || got.State != Expired {
		t.Errorf("a return after the end gave %+v, %v; want the expired job", got, err)
	}
}

func TestListPages(t *testing.T) {
	t.Parallel()
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
		page, err := e.List(t.Context(), "acme", Filter{}, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range page.Jobs {
			got = append(got, j.ID)
		}
		if after = page.Next; !page.More {
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
	count := func(f Filter, want int) {
		t.Helper()
		page, err := e.List(t.Context(), "acme", f, "", 10)
		if err != nil || len(page.Jobs) != want || page.More || page.Next != "" {
			t.Errorf("%+v: %d jobs, more %v, next %q, %v; want %d", f, len(page.Jobs), page.More, page.Next, err, want)
		}
	}
	if _, err := e.Cancel(t.Context(), "acme", ids[1]); err != nil { // the newest of bob's
		t.Fatal(err)
	}
	second, _ := e.Job(t.Context(), "acme", ids[3])
	count(Filter{User: "bob"}, 2)
	count(Filter{User: "nobody"}, 0)
	count(Filter{State: Cancelled}, 1)
	count(Filter{State: Queued}, 4)
	count(Filter{State: Queued, User: "bob"}, 1)
	count(Filter{Model: "m"}, 5)
	count(Filter{Model: "other"}, 0)
	count(Filter{Since: second.Created.Add(time.Millisecond)}, 3)
	count(Filter{Since: time.Now().Add(time.Hour)}, 0)
	if page, err := e.List(t.Context(), "acme", Filter{User: "bob"}, ids[0], 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("after another user's job: %+v, %v", page, err)
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
