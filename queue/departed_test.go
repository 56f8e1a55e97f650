package queue

import (
	"context"
	"errors"
	"testing"
	"time"
)

// next claims one job and returns its id, or "" if none may run.
func (e *env) next() string {
	e.t.Helper()
	for _, c := range e.claim("p", 1) {
		return c.Job.ID
	}
	return ""
}

// A reserved place does not start while its caller is absent: connected callers run first.
// A caller who returns has its old place.
func TestReservedPlaceWaitsForItsCaller(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", RPM: 100})
	ctx := t.Context()
	e.at(simStart)
	var ids []string
	for range 4 {
		ids = append(ids, e.put(e.job("p", "acme", "ann", Interactive, 10)).ID)
	}
	for _, id := range []string{ids[0], ids[2]} {
		if state, err := e.Places().Reserve(ctx, "acme", id, time.Minute); err != nil || state != Queued {
			t.Fatalf("reserved: %s, %v", state, err)
		}
	}
	if got := e.next(); got != ids[1] {
		t.Fatalf("claimed %s, want the first whose caller is connected", got)
	}
	if _, err := e.Places().Return(ctx, "acme", ids[0], time.Minute, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := e.next(); got != ids[0] {
		t.Fatalf("claimed %s, want the one whose caller is back in its old turn", got)
	}
	if got := []string{e.next(), e.next()}; got[0] != ids[3] || got[1] != "" {
		t.Fatalf("claimed %v, want the last connected one and nothing more", got)
	}
	e.endings.endOverdue(ctx) // recomputes the totals if they differ from those of the jobs
	d, err := e.Depth(ctx, "p")
	if err != nil || d.Jobs != 4 || d.Claims != 3 || d.Waiting != [4]int64{} || d.WaitingTokens != [4]int64{} {
		t.Errorf("depth %+v, %v", d, err)
	}
}

// A job that was claimed when its caller left does not start, and one that a worker returns
// does not run again, before the caller is back.
func TestReservedPlaceOfAClaimedJob(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(context.Context, *Claim) error{
		"claimed": func(ctx context.Context, c *Claim) error {
			if err := c.Start(ctx); !errors.Is(err, ErrGone) {
				return errors.New("it started without its caller")
			}
			return nil
		},
		"released": func(ctx context.Context, c *Claim) error {
			return c.release(ctx, Verdict{Kind: Requeue, Unused: true}, "0")
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, Options{}, Pool{ID: "p", RPM: 100})
			ctx := t.Context()
			e.at(simStart)
			j := e.put(e.job("p", "acme", "ann", Interactive, 10))
			c := e.claimOne("p", j)
			if _, err := e.Places().Reserve(ctx, "acme", j.ID, time.Minute); err != nil {
				t.Fatal(err)
			}
			if err := back(ctx, c); err != nil {
				t.Fatal(err)
			}
			d, err := e.Depth(ctx, "p")
			if err != nil || d.Claims != 0 || d.Rates[0].Used != 0 || d.Waiting[Interactive] != 0 || e.state(j) != Queued {
				t.Fatalf("depth %+v, %v; the job is %s", d, err, e.state(j))
			}
			if got := e.next(); got != "" {
				t.Fatalf("claimed %s without its caller", got)
			}
			if _, err := e.Places().Return(ctx, "acme", j.ID, time.Minute, time.Minute); err != nil {
				t.Fatal(err)
			}
			if err := e.claimOne("p", j).Start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// A job that needs no connected caller runs anyway. A reserved place ends when the job is
// cancelled or its time is up.
func TestReservedPlaceEnds(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx := t.Context()
	e.at(simStart)
	async := e.put(e.job("p", "acme", "ann", Async, 10))
	cancelled := e.put(e.job("p", "acme", "ann", Interactive, 10))
	abandoned := e.put(e.job("p", "acme", "ann", Interactive, 10))
	for _, j := range []*Job{async, cancelled, abandoned} {
		if _, err := e.Places().Reserve(ctx, "acme", j.ID, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.claimOne("p", async).conclude(ctx, Verdict{Kind: Done}); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Cancel(ctx, "acme", cancelled.ID); err != nil || got.State != Cancelled {
		t.Errorf("job %+v, %v; want it cancelled", got, err)
	}
	now := simStart
	e.pass(&now, 70*time.Second)
	if got, err := e.Job(ctx, "acme", abandoned.ID); err != nil || got.State != Cancelled || got.Code != "caller_gone" {
		t.Errorf("job %+v, %v; want it dropped", got, err)
	}
	if d, err := e.Depth(ctx, "p"); err != nil || d.Jobs != 0 || d.Bytes != 0 || d.WaitingTokens != [4]int64{} {
		t.Errorf("depth %+v, %v", d, err)
	}
}

// After Redis was unavailable for longer than a caller may be silent, no caller is judged
// by that silence. Connected callers renew their presence; the others are dropped one grace
// period later.
func TestNoCallerIsGoneAfterAnOutage(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]time.Duration{"outage": time.Minute, "clock ahead": time.Hour, "clock back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, Options{}, Pool{ID: "p", RPM: 100})
			ctx := t.Context()
			now := simStart
			e.pass(&now, 0)
			connected, left := e.put(e.job("p", "acme", "ann", Interactive, 10)), e.put(e.job("p", "acme", "ann", Interactive, 10))
			w := e.Watch(ctx, connected)
			defer w.Close()
			e.pass(&now, 4*time.Second)
			now += away
			e.at(now)
			c := e.claimOne("p", connected)
			if err := c.Start(ctx); away > 0 && (err == nil || errors.Is(err, ErrGone)) {
				t.Errorf("start before anybody could be seen: %v; want to try again", err)
			}
			if err := c.release(ctx, Verdict{Kind: Requeue, Unused: true}, "0"); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				e.pass(&now, 3*time.Second)
				if err := e.presence.renewPresence(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if s := e.state(connected); s != Queued {
				t.Errorf("the job of a connected caller is %s", s)
			}
			if s := e.state(left); away > 0 && s != Cancelled {
				t.Errorf("the job of a caller who left is %s", s)
			}
			if err := e.claimOne("p", connected).Start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// Full memory drops no job: the presence of callers is renewed all the same.
func TestFullMemoryKeepsWaitingCallers(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx := t.Context()
	now := simStart
	e.pass(&now, 0)
	j := e.put(e.job("p", "acme", "ann", Interactive, 10))
	w := e.Watch(ctx, j)
	defer w.Close()
	e.rdb.ConfigSet(ctx, "maxmemory", "1")
	for range 20 {
		e.pass(&now, 4*time.Second)
		if err := e.presence.renewPresence(ctx); err != nil {
			t.Fatal(err)
		}
	}
	e.rdb.ConfigSet(ctx, "maxmemory", "0")
	if s := e.state(j); s != Queued {
		t.Errorf("the job of a connected caller is %s", s)
	}
}
