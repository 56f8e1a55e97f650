package queue

import (
	"errors"
	"testing"
	"time"
)

func TestPutIsIdempotent(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	created := j.Created
	e.put(j)
	if !j.Created.Equal(created) {
		t.Errorf("second put says created %s, first %s", j.Created, created)
	}
	if got := e.claim("p", 5); len(got) != 1 {
		t.Fatalf("%d claims after two puts, want 1", len(got))
	}
	e.put(j) // a late replay must not queue a claimed job again
	if got := e.claim("p", 5); len(got) != 0 {
		t.Fatalf("%d claims after a late put", len(got))
	}
	if d, _ := e.Depth(t.Context(), "p"); d.Jobs != 1 {
		t.Errorf("%d jobs counted", d.Jobs)
	}
}

func TestPutBounds(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{OrgShare: 50}, Pool{ID: "p", MaxJobs: 4, MaxBytes: 100, RPM: 60, TPM: 1000})
	scope := func(j *Job, body string) string {
		var full *FullError
		err := e.Put(t.Context(), j, []byte(body))
		if err == nil {
			return ""
		}
		if !errors.As(err, &full) {
			t.Fatal(err)
		}
		if full.Scope != "tokens" && full.RetryAfter < time.Second {
			t.Errorf("RetryAfter %s", full.RetryAfter)
		}
		return full.Scope
	}
	steps := []struct {
		org, body, want string
		tokens          int64
	}{
		{"a", "x", "", 1},
		{"a", "x", "", 1},
		{"a", "x", "org_jobs", 1},
		{"b", "0123456789012345678901234567890123456789012345678901", "org_bytes", 1},
		{"b", "x", "", 1},
		{"c", "x", "", 1},
		{"d", "x", "jobs", 1},
		{"a", "x", "tokens", 1001},
	}
	var first *Job
	for _, s := range steps {
		j := e.job("p", s.org, "u", Async, s.tokens)
		if got := scope(j, s.body); got != s.want {
			t.Errorf("put for %s of %d bytes: full %q, want %q", s.org, len(s.body), got, s.want)
		}
		if first == nil {
			first = j
		}
	}
	if _, err := e.Cancel(t.Context(), "a", first.ID); err != nil {
		t.Fatal(err)
	}
	if got := scope(e.job("p", "a", "u", Async, 1), "x"); got != "" {
		t.Errorf("after a cancel: full %q", got)
	}
}

func TestAcquireReplaysItsReply(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", RPM: 1000})
	for range 4 {
		e.put(e.job("p", "acme", "ann", Async, 10))
	}
	pc := newPacer(e.Queue, e.settings.pools()["p"], 1)
	first, err := pc.acquire(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	pc.seq-- // as after a lost reply
	again, err := pc.acquire(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range first.claims {
		if first.claims[i].id != again.claims[i].id || first.claims[i].token != again.claims[i].token {
			t.Errorf("claim %d differs on replay", i)
		}
	}
	if d, _ := e.Depth(t.Context(), "p"); d.Claims != 2 || d.Rates[0].Used != 2 || d.Waiting[Async] != 2 {
		t.Errorf("after the replay: %+v", d)
	}
}

func TestStartAndFinishAreIdempotent(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx := t.Context()
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	c := e.claimOne("p", j)
	for range 2 {
		c.started = false // the reply was lost
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if c.Job.Attempt != 1 {
		t.Errorf("attempt %d after a replayed start", c.Job.Attempt)
	}
	for range 2 {
		if err := c.finish(ctx, Succeeded, Verdict{}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.finish(ctx, Failed, Verdict{}, "x"); err != nil {
		t.Errorf("a replay with another outcome: %v", err)
	}
	got, _ := e.Job(ctx, "acme", j.ID)
	if got.State != Succeeded {
		t.Errorf("job is %s", got.State)
	}
	if d, _ := e.Depth(ctx, "p"); d.Jobs != 0 || d.Bytes != 0 {
		t.Errorf("counted twice: %+v", d)
	}
	if got, _ := e.Cancel(ctx, "acme", j.ID); got.State != Succeeded {
		t.Errorf("cancel changed an ended job to %s", got.State)
	}
}

func TestReleaseIsIdempotentAndFenced(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", RPM: 100})
	ctx := t.Context()
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	e.put(e.job("p", "acme", "ann", Async, 10))
	c := e.claimOne("p", j)
	for range 2 {
		if err := c.release(ctx, Verdict{Kind: Requeue, Unused: true}, "0"); err != nil {
			t.Fatal(err)
		}
	}
	if d, _ := e.Depth(ctx, "p"); d.Rates[0].Used != 0 || d.Waiting[Async] != 2 {
		t.Errorf("after release: %+v", d)
	}
	again := e.claimOne("p", j) // back in its place: the head
	if again.Job.Attempt != 0 || again.Job.Tries != 0 {
		t.Errorf("an attempt was counted: %+v", again.Job)
	}
	if err := c.Start(ctx); !errors.Is(err, ErrLost) {
		t.Errorf("start with the old token: %v", err)
	}
	c.closed = false
	if err := c.finish(ctx, Succeeded, Verdict{}, ""); !errors.Is(err, ErrLost) {
		t.Errorf("finish with the old token: %v", err)
	}
}

// The claims of a dead worker return to the head. If the worker comes back as a zombie, it
// cannot end the job.
func TestDeadWorkerAndZombie(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", Concurrency: 1})
	ctx := t.Context()
	now := simStart
	e.at(now)
	first := e.put(e.job("p", "acme", "ann", Async, 10))
	e.put(e.job("p", "acme", "ann", Async, 10))
	zombie := e.claimOne("p", first)
	if err := zombie.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if got := e.claim("p", 1); len(got) != 0 {
		t.Fatal("claimed beyond the concurrency")
	}
	e.lapse("p", now+e.opts.Lease+time.Second)
	heir := e.claimOne("p", first)
	if s := e.state(first); s != Running { // claimed again, not yet started
		t.Errorf("state %s", s)
	}
	if err := zombie.finish(ctx, Succeeded, Verdict{}, ""); !errors.Is(err, ErrLost) {
		t.Errorf("zombie finished: %v", err)
	}
	if err := zombie.release(ctx, Verdict{Kind: Requeue}, "0"); !errors.Is(err, ErrLost) {
		t.Errorf("zombie released: %v", err)
	}
	if letters, err := e.scripts.renew(ctx, zombie.p, []any{zombie.id, zombie.token, heir.id, heir.token}); err != nil || letters != "lk" {
		t.Errorf("renewed %q, %v", letters, err)
	}
	if err := heir.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if heir.Job.Attempt != 2 {
		t.Errorf("attempt %d", heir.Job.Attempt)
	}
	if err := heir.finish(ctx, Succeeded, Verdict{}, ""); err != nil {
		t.Fatal(err)
	}
	if err := zombie.finish(ctx, Failed, Verdict{}, ""); !errors.Is(err, ErrGone) {
		t.Errorf("zombie finished an ended job: %v", err)
	}
	if got, _ := e.Job(ctx, "acme", first.ID); got.State != Succeeded {
		t.Errorf("job is %s", got.State)
	}
}

func TestPoisonEndsAfterItsAttempts(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{MaxAttempts: 2}, Pool{ID: "p", RPM: 100})
	now := simStart
	e.at(now)
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	for range 2 {
		if err := e.claimOne("p", j).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		now += e.opts.Lease + time.Second
		e.lapse("p", now)
	}
	if err := e.claimOne("p", j).Start(t.Context()); !errors.Is(err, ErrGone) {
		t.Fatalf("third start: %v", err)
	}
	got, err := e.Job(t.Context(), "acme", j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.State != Failed || got.Code != "attempts_exhausted" || got.Attempt != 2 || got.Error == nil {
		t.Errorf("job is %+v", got)
	}
	if d, _ := e.Depth(t.Context(), "p"); d.Rates[0].Used != 1 {
		t.Errorf("%d requests booked in the last minute, want 1: the third was never made", d.Rates[0].Used)
	}
	page, err := e.List(t.Context(), "acme", Filter{}, "", 10)
	if err != nil || page.More || len(page.Jobs) != 1 || page.Jobs[0].ID != j.ID {
		t.Errorf("listed %+v, %v", page, err)
	}
}

// What a dead attempt left decides what happens: a complete answer is recovered, part of a
// stream that a caller was reading fails the job, and everything else is repeated.
func TestRemainsOfADeadAttempt(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		class     Class
		stream    bool
		end       bool
		recovered bool
		gone      bool
	}{
		{"complete", Interactive, true, true, true, false},
		{"part of a stream", Interactive, true, false, false, true},
		{"part of an answer", Interactive, false, false, false, false},
		{"part of a stream nobody reads", Async, true, false, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnv(t, Options{Lease: time.Minute, Grace: time.Hour}, Pool{ID: "p"})
			ctx := t.Context()
			e.at(simStart)
			j := e.job("p", "acme", "ann", tc.class, 10)
			j.Stream = tc.stream
			c := e.claimOne("p", e.put(j))
			if err := c.Start(ctx); err != nil {
				t.Fatal(err)
			}
			out := c.Output()
			if _, err := out.Write([]byte("part")); err != nil {
				t.Fatal(err)
			}
			if tc.end {
				if err := out.End(ctx, true, Verdict{Kind: Done, Status: 200}); err != nil {
					t.Fatal(err)
				}
			} else if err := out.flush(ctx); err != nil {
				t.Fatal(err)
			}
			out.stop()
			e.lapse("p", simStart+2*time.Minute)
			heir := e.claimOne("p", j)
			if (heir.Recovered != nil) != tc.recovered || tc.recovered && heir.Recovered.Status != 200 {
				t.Fatalf("recovered %+v", heir.Recovered)
			}
			if tc.recovered {
				if err := heir.conclude(ctx, *heir.Recovered); err != nil {
					t.Fatal(err)
				}
				if got, _ := e.Job(ctx, "acme", j.ID); got.State != Succeeded || got.Attempt != 1 {
					t.Errorf("job is %+v", got)
				}
				return
			}
			err := heir.Start(ctx)
			if gone := errors.Is(err, ErrGone); gone != tc.gone {
				t.Fatalf("start: %v", err)
			}
			if got, _ := e.Job(ctx, "acme", j.ID); tc.gone && (got.State != Failed || got.Code != "interrupted") {
				t.Errorf("job is %s, %s", got.State, got.Code)
			}
		})
	}
}
