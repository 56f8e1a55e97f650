package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// failedOnce claims the next job, starts it, and lets the provider fail it.
func (e *env) failedOnce(pool string, j *Job) {
	e.t.Helper()
	c := e.claimOne(pool, j)
	if err := c.Start(e.t.Context()); err != nil {
		e.t.Fatal(err)
	}
	if err := c.conclude(e.t.Context(), Verdict{Kind: Retry, Wait: pause(c.Job), Failed: true}); err != nil {
		e.t.Fatal(err)
	}
}

// TestRetriesWaitAlone checks that a job that failed at the provider waits for its next
// attempt, in doubling pauses, while the rest of its flow continues, and then has its old
// place. None of these attempts counts against MaxAttempts, and all their costs are
// counted.
func TestRetriesWaitAlone(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{MaxAttempts: 1}, Pool{ID: "p"})
	now := simStart
	e.at(now)
	first := e.put(e.job("p", "acme", "alice", Batch, 10))
	e.put(e.job("p", "acme", "alice", Batch, 10))
	for n, rest := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
		e.failedOnce("p", first)
		j, err := e.Job(t.Context(), "acme", first.ID)
		if err != nil || j.State != Queued || j.Retries != n+1 || j.Attempt != n+1 || j.Tries != 0 {
			t.Fatalf("after %d failures: %+v, %v", n+1, j, err)
		}
		if got := time.Duration(j.Again.UnixMicro())*time.Microsecond - now; got != rest {
			t.Errorf("pause %d is %s, want %s", n+1, got, rest)
		}
		now += rest - time.Millisecond
		e.at(now)
		for _, c := range e.claim("p", 9) {
			if c.id == first.ID {
				t.Fatalf("it runs before its pause %d is over", n+1)
			}
			if err := c.conclude(t.Context(), Verdict{Kind: Done}); err != nil {
				t.Fatal(err)
			}
		}
		e.put(e.job("p", "acme", "alice", Batch, 10))
		now += time.Millisecond
		e.at(now)
	}
	c := e.claimOne("p", first)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.conclude(t.Context(), Verdict{Kind: Done}); err != nil {
		t.Fatal(err)
	}
	if j, err := e.Job(t.Context(), "acme", first.ID); err != nil || j.State != Succeeded || j.Attempt != 4 {
		t.Errorf("in the end: %+v, %v", j, err)
	}
}

// TestRetryCanBeCancelledAndForgotten checks that a job waiting for its next attempt can be
// cancelled and leaves nothing behind, and that its pool does not count as idle meanwhile.
func TestRetryCanBeCancelledAndForgotten(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	now := simStart
	e.at(now)
	j := e.put(e.job("p", "acme", "alice", Async, 10))
	e.failedOnce("p", j)
	if n, err := e.rdb.Exists(t.Context(), e.settings.pools()["p"].workKeys()...).Result(); err != nil || n == 0 {
		t.Errorf("the pool looks as if it had no work: %d, %v", n, err)
	}
	if got, err := e.Cancel(t.Context(), "acme", j.ID); err != nil || got.State != Cancelled {
		t.Fatalf("%+v, %v", got, err)
	}
	if n := e.rdb.Exists(t.Context(), e.settings.pools()["p"].keys[20], e.settings.pools()["p"].keys[11]).Val(); n != 0 {
		t.Errorf("%d of its traces stay", n)
	}
	now += time.Hour
	e.at(now)
	if got := e.claim("p", 9); len(got) != 0 {
		t.Errorf("%d claims of a cancelled job", len(got))
	}
}

// TestRetryExpiresInTime checks that the deadline bounds a pause too, and that a clock step
// ends it.
func TestRetryExpiresInTime(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", MaxAge: time.Minute})
	now := simStart
	e.at(now)
	j := e.put(e.job("p", "acme", "alice", Async, 10))
	e.failedOnce("p", j)
	if at := e.expect(j); at != (Place{}) {
		t.Errorf("its place: %+v", at)
	}
	now += 2 * time.Minute
	e.at(now)
	e.endings.endOverdue(t.Context())
	if got := e.state(j); got != Expired {
		t.Errorf("it is %s, want expired", got)
	}
	again := e.put(e.job("p", "acme", "alice", Async, 10))
	e.failedOnce("p", again)
	now -= time.Hour
	e.at(now)
	if got := e.claim("p", 9); len(got) != 1 || got[0].id != again.ID {
		t.Errorf("after the clock was set back an hour: %d claims, want it", len(got))
	}
}

// TestLongOutageEndsNoJob checks that a job is tried every half minute while its provider
// is unreachable, for as long as it may be tried at all.
func TestLongOutageEndsNoJob(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{RetryFor: 24 * time.Hour}, Pool{ID: "p"})
	r := &runner{q: e.Queue}
	why := wire.BadGateway("The provider cannot be reached", nil)
	j := e.job("p", "acme", "alice", Batch, 10)
	j.Created, j.Deadline = time.Now(), time.Now().Add(24*time.Hour)
	for n := range 100 {
		v := r.unreached(&Claim{Job: j}, why)
		if v.Kind != Requeue || v.Wait > 30*time.Second || n > 9 && v.Wait != 30*time.Second || !v.Unused {
			t.Fatalf("after %d attempts: %+v", n, v)
		}
		if v.Failed {
			j.Retries++
		}
	}
	j.Created = time.Now().Add(-24 * time.Hour)
	if v := r.unreached(&Claim{Job: j}, why); v.Kind != Fail || v.Error == nil || v.Error.Status != 502 {
		t.Errorf("when its time is over: %+v", v)
	}
}

// TestJobsBetweenAttemptsAreListed checks that they are listed as queued: for all orgs, for
// their org and for their user.
func TestJobsBetweenAttemptsAreListed(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	e.at(simStart)
	j := e.put(e.job("p", "acme", "alice", Async, 10))
	e.failedOnce("p", j)
	for _, f := range []Filter{{State: Queued}, {State: Queued, User: "alice"}} {
		if page, err := e.List(t.Context(), "acme", f, "", 10); err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != j.ID {
			t.Errorf("%+v: got %+v, %v; want the job", f, page.Jobs, err)
		}
	}
	if page, err := e.List(t.Context(), "", Filter{State: Queued}, "", 10); err != nil || len(page.Jobs) != 1 {
		t.Errorf("of all orgs: got %+v, %v; want the job", page.Jobs, err)
	}
}

// TestUnparkWakesBrakedJobs checks that jobs that a brake refused are tried again as soon as what holds
// their org back has changed, those of other orgs and those whose provider failed only later.
func TestUnparkWakesBrakedJobs(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	now := simStart
	e.at(now)
	rests := func(org string, kind Kind) string {
		j := e.put(e.job("p", org, "alice", Async, 10))
		v := Verdict{Kind: kind, Wait: time.Minute, Unused: true}
		if err := e.claim("p", 1)[0].release(t.Context(), v, "0"); err != nil {
			t.Fatal(err)
		}
		return j.ID
	}
	braked, gone, other, failed := rests("acme", Rest), rests("acme", Rest), rests("other", Rest), rests("acme", Retry)
	if got := e.claim("p", 9); len(got) != 0 {
		t.Fatalf("got %d claims of jobs that rest, want none", len(got))
	}
	if err := e.Unpark(t.Context(), map[string]bool{"acme": true}); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Cancel(t.Context(), "acme", gone); err != nil || got.State != Cancelled {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := e.claim("p", 9); len(got) != 1 || got[0].id != braked {
		t.Errorf("got %d claims, want the braked job of acme", len(got))
	}
	now += time.Minute
	e.at(now)
	var ids []string
	for _, c := range e.claim("p", 9) {
		ids = append(ids, c.id)
	}
	slices.Sort(ids)
	if want := slices.Sorted(slices.Values([]string{other, failed})); !slices.Equal(ids, want) {
		t.Errorf("a minute later got %v, want %v", ids, want)
	}
}
