package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/llmguard/llmguard/quota"
)

// Live calls have priority, but while jobs wait they leave the jobs their share, even for a
// job larger than what is free at any moment.
func TestLiveCallsLeaveTheBacklogItsShare(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Shares: Shares{Interactive: 20, Async: 10, Batch: 5}}, Pool{ID: "p", TPM: 60_000})
	now := simStart
	e.at(now)
	var backlog []*Job
	for range 60 {
		backlog = append(backlog, e.job("p", "acme", "ann", Async, 2000))
	}
	e.putAll(backlog)
	pc := newPacer(e.Queue, e.settings.pools()["p"], 1)
	next := now
	var live, jobs int64
	var log []booked
	for i := 0; now < simStart+2*time.Minute; now += 40 * time.Millisecond {
		e.at(now)
		if g, err := e.Take(t.Context(), "p", fmt.Sprint("c", i), Flow{"live", "u"}, 100); err == nil {
			live += 100
			log = append(log, booked{now, 100})
			if err := e.Give(t.Context(), g, false); err != nil {
				t.Fatal(err)
			}
		}
		if i++; now < next {
			continue
		}
		got, err := pc.acquire(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		next = now + min(got.wait, maxSleep)
		for _, c := range got.claims {
			jobs += c.tokens
			log = append(log, booked{now, c.tokens})
			if err := c.finish(t.Context(), Succeeded, Verdict{}, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	checkWindows(t, log, Pool{TPM: 60_000})
	share := float64(jobs) / float64(jobs+live)
	t.Logf("jobs got %.1f %% of %d tokens", 100*share, jobs+live)
	if share < 0.09 {
		t.Errorf("jobs got %.1f %%, they are guaranteed 10 %%", 100*share)
	}
	if share > 0.3 {
		t.Errorf("jobs got %.1f %%, live calls go first", 100*share)
	}
}

// Live calls leave jobs a slot even if few calls may be open.
func TestLiveCallsLeaveAPlace(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", Concurrency: 2})
	ctx := t.Context()
	var grants []*quota.Grant
	for _, id := range []string{"a", "b"} {
		g, err := e.Take(ctx, "p", id, Flow{"live", "u"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	e.put(e.job("p", "acme", "ann", Async, 1))
	if got := e.claim("p", 1); len(got) != 0 {
		t.Fatal("claimed beyond the concurrency")
	}
	if err := e.Give(ctx, grants[0], false); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Take(ctx, "p", "c", Flow{"live", "u"}, 1); err == nil {
		t.Error("a live call took the place a job waits for")
	}
	if got := e.claim("p", 1); len(got) != 1 {
		t.Errorf("%d claims, want 1", len(got))
	}
}

// If the provider counts actual tokens, tokens booked in excess are returned, and tokens
// used in excess count.
func TestActualTokens(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Burst: 1000}, Pool{ID: "p", TPM: 1000, ActualTokens: true}, Pool{ID: "q", TPM: 1000})
	ctx := t.Context()
	e.at(simStart)
	for _, c := range []struct {
		pool       string
		used, want int64
	}{{"p", 100, 100}, {"p", -1, 500}, {"p", 300, 800}, {"q", 100, 400}} {
		g, err := e.Take(ctx, c.pool, fmt.Sprint(c.pool, c.used), Flow{"acme", "ann"}, 400)
		if err != nil {
			t.Fatal(err)
		}
		g.Used = c.used
		if err := e.Give(ctx, g, false); err != nil {
			t.Fatal(err)
		}
		if d, _ := e.Depth(ctx, c.pool); d.Rates[1].Used != c.want {
			t.Errorf("%s after %d used: %d tokens booked, want %d", c.pool, c.used, d.Rates[1].Used, c.want)
		}
	}
	j := e.put(e.job("p", "acme", "ann", Async, 200))
	c := e.claimOne("p", j)
	if err := c.finish(ctx, Succeeded, Verdict{Counted: quota.Counted{Used: 50}}, ""); err != nil {
		t.Fatal(err)
	}
	if d, _ := e.Depth(ctx, "p"); d.Rates[1].Used != 850 {
		t.Errorf("%d tokens booked after a job, want 850", d.Rates[1].Used)
	}
}

// A limit for certain models or a key parks only the matching jobs. When it wakes, one
// probe runs first.
func TestParkByModelAndKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		scope Scope
		runs  []string // the jobs that may run while it is parked
	}{
		"flow and model": {ParkFlowModel, []string{"ann k2 mini", "ann k1 mini", "bob k3 big"}},
		"org and model":  {ParkOrgModel, []string{"ann k2 mini", "ann k1 mini"}},
		"key":            {ParkKey, []string{"ann k2 big", "ann k2 mini", "bob k3 big"}},
		"key and model":  {ParkKeyModel, []string{"ann k2 big", "ann k2 mini", "ann k1 mini", "bob k3 big"}},
		"pool":           {ParkPool, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, Options{}, Pool{ID: "p"})
			ctx, now := t.Context(), simStart
			e.at(now)
			put := func(who string) *Job {
				var user, key, model string
				fmt.Sscan(who, &user, &key, &model)
				j := e.job("p", "acme", user, Async, 10)
				j.Key, j.Model = key, model
				return e.put(j)
			}
			first := put("ann k1 big")
			put("ann k1 big")
			for _, who := range []string{"ann k2 big", "ann k2 mini", "ann k1 mini", "bob k3 big"} {
				put(who)
			}
			c := e.claimOne("p", nil)
			if c.id != first.ID { // bob's turn may come first
				if err := c.release(ctx, Verdict{Kind: Requeue, Unused: true}, "0"); err != nil {
					t.Fatal(err)
				}
				c = e.claimOne("p", first)
			}
			park := Verdict{Kind: Park, Wait: 10 * time.Second, Scope: tc.scope, Unused: true}
			if err := c.release(ctx, park, "0"); err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for _, c := range e.claim("p", 10) {
				got[c.Job.User+" "+c.Job.Key+" "+c.Job.Model] = true
				if err := c.finish(ctx, Succeeded, Verdict{}, ""); err != nil {
					t.Fatal(err)
				}
			}
			for _, who := range tc.runs {
				if !got[who] {
					t.Errorf("%s did not run", who)
				}
			}
			if len(got) != len(tc.runs) {
				t.Errorf("ran %v, want %v", got, tc.runs)
			}
			now += 10 * time.Second
			e.at(now)
			probe := e.claim("p", 10)
			if len(probe) != 1 {
				t.Fatalf("%d claims at the wake, want one probe", len(probe))
			}
			if err := probe[0].release(ctx, park, "0"); err != nil {
				t.Fatal(err)
			}
			if again := e.claim("p", 10); len(again) != 0 {
				t.Fatalf("%d claims after the probe was refused", len(again))
			}
			now += 10 * time.Second
			e.at(now)
			if probe = e.claim("p", 10); len(probe) != 1 {
				t.Fatalf("%d claims at the second wake", len(probe))
			}
			if err := probe[0].Start(ctx); err != nil {
				t.Fatal(err)
			}
			rest := 6 - len(tc.runs) - 1 // all that did not run, except the probe
			if got := e.claim("p", 10); len(got) != rest {
				t.Errorf("%d claims after the probe was admitted, want %d", len(got), rest)
			}
		})
	}
}

// A parked pool is listed, and its jobs report how long they wait.
func TestParkedPoolIsListed(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	e.at(simStart)
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	c := e.claimOne("p", j)
	if err := c.release(t.Context(), Verdict{Kind: Park, Wait: time.Second, Scope: ParkPool, Unused: true}, "0"); err != nil {
		t.Fatal(err)
	}
	list, err := e.Parked(t.Context(), "p")
	if err != nil || len(list) != 1 || list[0].Flow != (Flow{}) || list[0].What != "all" {
		t.Errorf("parked are %+v, %v; want the pool for all", list, err)
	}
}
