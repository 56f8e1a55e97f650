package queue

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// backlog is who waits in TestLightOrgsBesideHogs: hogs with `deep` jobs, twenty
// orgs with a twentieth of that.
func (e *env) backlog(deep int, hog func(i int) (org, user string)) {
	e.t.Helper()
	var g errgroup.Group
	g.SetLimit(16)
	put := func(org, user string) {
		j := e.job("p", org, user, Async, 100)
		g.Go(func() error { return e.Put(e.t.Context(), j, nil) })
	}
	for i := range deep {
		put(hog(i))
		put(fmt.Sprintf("heavy%d", i%20), "u")
	}
	if err := g.Wait(); err != nil {
		e.t.Fatal(err)
	}
}

// TestLightOrgsBesideHogs drains, in simulated time and at 100 requests a
// second, one org with a great backlog and twenty with large ones, while five
// light orgs put a job a second each. The light ones wait half a second at most,
// the quota is used and never exceeded; and nothing changes when the hog splits
// into a thousand users. LLMGUARD_LONG takes 40,000 jobs and three minutes.
func TestLightOrgsBesideHogs(t *testing.T) {
	deep, length := 4000, 30*time.Second
	if os.Getenv("LLMGUARD_LONG") != "" {
		deep, length = 20_000, 3*time.Minute
	}
	for name, hog := range map[string]func(i int) (string, string){
		"one user":         func(int) (string, string) { return "hog", "u" },
		"a thousand users": func(i int) (string, string) { return "hog", fmt.Sprintf("u%d", i%1000) },
	} {
		t.Run(name, func(t *testing.T) {
			pool := Pool{ID: "p", RPM: 6000, MaxJobs: -1}
			e := newEnv(t, Options{OrgShare: 100}, pool)
			e.at(simStart)
			e.backlog(deep, hog)
			pc := newPacer(e.Queue, e.pools()["p"], 1)
			put := make(map[string]time.Duration)
			var waits []time.Duration
			var log []booked
			hogs := 0
			next := simStart
			for now := simStart; now < simStart+length; now += 10 * time.Millisecond {
				e.at(now)
				if since := now - simStart; since%(200*time.Millisecond) == 0 {
					j := e.put(e.job("p", fmt.Sprintf("light%d", since/(200*time.Millisecond)%5), "u", Async, 100))
					put[j.ID] = now
				}
				if now < next {
					continue
				}
				got, err := pc.acquire(t.Context(), 64)
				if err != nil {
					t.Fatal(err)
				}
				next = now + min(max(got.wait, 0), maxSleep)
				for _, c := range got.claims {
					log = append(log, booked{now, 1})
					if at, ok := put[c.id]; ok {
						waits = append(waits, now-at)
					} else if j, err := e.load(t.Context(), c.p, c.id); err == nil && j.Org == "hog" {
						hogs++
					}
					if err := c.finish(t.Context(), Succeeded, Verdict{}, ""); err != nil {
						t.Fatal(err)
					}
				}
			}
			checkWindows(t, log, pool)
			slices.Sort(waits)
			p95 := waits[len(waits)*95/100]
			used := float64(len(log)) / (100 * length.Seconds())
			t.Logf("light p95 %s of %d, %.1f %% of the quota, hog %.1f %% of the rest", p95, len(waits), 100*used, 100*float64(hogs)/float64(len(log)-len(waits)))
			if want := int(length/time.Second)*5 - 5; len(waits) < want || p95 > 500*time.Millisecond {
				t.Errorf("%d light jobs ran, p95 of their wait %s", len(waits), p95)
			}
			if used < 0.97 {
				t.Errorf("used %.1f %% of the quota", 100*used)
			}
			if share := float64(hogs) / float64(len(log)-len(waits)); share > 1.1/21 {
				t.Errorf("the hog got %.1f %%, one of 21", 100*share)
			}
		})
	}
}

// A job costs at most 12 round trips to Redis, asynq's too, from put to its end.
func TestRoundTripsOfAJob(t *testing.T) {
	e := newEnv(t, Options{}, Pool{ID: "p", RPM: 1e6})
	rdb := redis.NewClient(e.rdb.Options())
	t.Cleanup(func() { _ = rdb.Close() })
	var asked atomic.Int64
	rdb.AddHook(counting{&asked})
	q, err := New(rdb, []Pool{{ID: "p", RPM: 1e6, MaxJobs: -1}}, Options{OrgShare: 100, Logger: e.log})
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 2000
	var done atomic.Int64
	counted := &env{Queue: q, t: t, rdb: rdb, srv: e.srv}
	counted.run(func(ctx context.Context, c *Claim) Verdict {
		defer done.Add(1)
		return noop(ctx, c)
	}, WorkerOptions{})
	counted.backlog(jobs/2, func(int) (string, string) { return "hog", "u" })
	eventually(t, "all done", func() bool { return done.Load() == jobs })
	per := float64(asked.Load()) / jobs
	t.Logf("%.1f round trips a job", per)
	if per > 12 {
		t.Errorf("%.1f round trips a job", per)
	}
}
