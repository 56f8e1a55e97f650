package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// noticed puts a job whose end is to be announced.
func (e *env) noticed(notice string) *Job {
	j := e.job("p", "acme", "ann", Async, 10)
	j.Notice = notice
	return e.put(j)
}

// ends returns what one announcer receives now.
func (e *env) ends(fail error) []JobEnd {
	e.t.Helper()
	var got []JobEnd
	if err := e.endings.announce(e.t.Context(), e.settings.pools()["p"], func(_ context.Context, end JobEnd) error {
		got = append(got, end)
		return fail
	}); err != nil {
		e.t.Fatal(err)
	}
	return got
}

// Every way in which a job can end is announced once. Jobs without a notice are not
// announced.
func TestEveryEndIsAnnounced(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{MaxAttempts: 1, Lease: time.Minute}, Pool{ID: "p"})
	ctx, now := t.Context(), simStart
	e.at(now)
	want := map[string]State{}
	finish := func(state State) {
		j := e.noticed("a notice, with spaces: " + string(state))
		want[j.ID] = state
		c := e.claimOne("p", j)
		if err := errors.Join(c.Start(ctx), c.finish(ctx, state, Verdict{}, "x"), c.finish(ctx, state, Verdict{}, "x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, state := range []State{Succeeded, Failed, Cancelled} {
		finish(state)
	}
	silent := e.put(e.job("p", "acme", "ann", Async, 10))
	if err := e.claimOne("p", silent).finish(ctx, Succeeded, Verdict{}, ""); err != nil {
		t.Fatal(err)
	}
	waiting := e.noticed("cancelled while it waits")
	want[waiting.ID] = Cancelled
	released := e.noticed("cancelled while it runs")
	want[released.ID] = Cancelled
	dead := e.noticed("its worker dies")
	want[dead.ID] = Failed
	if _, err := e.Cancel(ctx, "acme", waiting.ID); err != nil {
		t.Fatal(err)
	}
	c := e.claimOne("p", released)
	if _, err := e.Cancel(ctx, "acme", released.ID); err != nil {
		t.Fatal(err)
	}
	if err := c.release(ctx, Verdict{}, "0"); !errors.Is(err, ErrGone) {
		t.Fatal(err)
	}
	if err := e.claimOne("p", dead).Start(ctx); err != nil {
		t.Fatal(err)
	}
	now += 2 * time.Minute
	e.lapse("p", now)
	if err := e.claimOne("p", dead).Start(ctx); !errors.Is(err, ErrGone) {
		t.Fatal(err)
	}
	late := e.noticed("nobody ran it")
	want[late.ID] = Expired
	now += 25 * time.Hour
	e.at(now)
	e.endings.endOverdue(ctx)

	got := e.ends(nil)
	for _, end := range got {
		if want[end.ID] != end.State || end.Org != "acme" || end.At.IsZero() || !strings.Contains(end.Notice, " ") {
			t.Errorf("announced %+v, want state %s", end, want[end.ID])
		}
		delete(want, end.ID)
	}
	if len(want) > 0 || len(got) != 7 {
		t.Errorf("%d announced, not among them %v", len(got), want)
	}
	e.at(now + time.Hour)
	if again := e.ends(nil); len(again) != 0 {
		t.Errorf("announced again: %+v", again)
	}
}

// An end whose announcer died or failed is announced to another one later, and to no other
// before that.
func TestAnnouncedAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	now := simStart
	e.at(now)
	for range announceMost + 5 {
		j := e.noticed("x")
		if _, err := e.Cancel(t.Context(), "acme", j.ID); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(e.ends(errors.New("no"))); n != announceMost+5 {
		t.Fatalf("told of %d", n)
	}
	if n := len(e.ends(nil)); n != 0 {
		t.Errorf("told of %d that another tells of", n)
	}
	e.at(now + announceLease + time.Second)
	if n := len(e.ends(nil)); n != announceMost+5 {
		t.Errorf("told of %d after the lease", n)
	}
}

// A process that runs Announce immediately receives the ends that happen in it.
func TestAnnounceRuns(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	e.run(func(ctx context.Context, c *Claim) Verdict {
		if err := c.Start(ctx); err != nil {
			t.Error(err)
		}
		return Verdict{Kind: Done}
	}, WorkerOptions{})
	told := make(chan JobEnd, 1)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- e.Announce(ctx, func(_ context.Context, end JobEnd) error { told <- end; return nil })
	}()
	j := e.noticed(`{"url":"x"}`)
	if end := redistest.Came(t, told); end.ID != j.ID || end.State != Succeeded || end.Notice != j.Notice {
		t.Errorf("told %+v", end)
	}
	stop()
	if err := redistest.Came(t, done); err != nil {
		t.Error(err)
	}
}
