package queue

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// backlog puts the waiting jobs of TestLightOrgsBesideHogs: hogs with `deep` jobs in total,
// twenty orgs with a twentieth of that each.
func (e *env) backlog(deep int, hog func(i int) (org, user string)) {
	e.t.Helper()
	var jobs []*Job
	for i := range deep {
		org, user := hog(i)
		jobs = append(jobs, e.job("p", org, user, Async, 100), e.job("p", fmt.Sprintf("heavy%d", i%20), "u", Async, 100))
	}
	e.putAll(jobs)
}

// TestLightOrgsBesideHogs drains, in simulated time and at 100 requests a second, one org
// with a huge backlog and twenty with large ones, while five light orgs put a job a second
// each. The light orgs wait half a second at most, the quota is used and never exceeded,
// and nothing changes if the hog splits into a thousand users.
func TestLightOrgsBesideHogs(t *testing.T) {
	t.Parallel()
	deep, length := 1400, 10*time.Second
	if soak {
		deep, length = 20_000, 3*time.Minute
	}
	for name, hog := range map[string]func(i int) (string, string){
		"one user":         func(int) (string, string) { return "hog", "u" },
		"a thousand users": func(i int) (string, string) { return "hog", fmt.Sprintf("u%d", i%1000) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := Pool{ID: "p", RPM: 6000, MaxJobs: -1}
			e := newEnv(t, Options{OrgShare: 100, Burst: 10}, pool)
			e.at(simStart)
			e.backlog(deep, hog)
			pc := newPacer(e.Queue, e.settings.pools()["p"], 1)
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
					} else if j, err := e.reader.load(t.Context(), c.p, c.id); err == nil && j.Org == "hog" {
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

// A job on an otherwise idle pool costs at most 9 round trips to Redis from put to its end,
// and two more of the asynq server.
func TestRoundTripsOfAJob(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	var asked atomic.Int64
	e.rdb.AddHook(counting{&asked})
	for _, first := range []bool{true, false} { // the first one loads the scripts
		asked.Store(0)
		c := e.claimOne("p", e.put(e.job("p", "acme", "ann", Async, 10)))
		if err := c.conclude(t.Context(), noop(t.Context(), c)); err != nil {
			t.Fatal(err)
		}
		if n := asked.Load(); n > 9 && !first {
			t.Errorf("a job costs %d round trips, want at most 9", n)
		}
	}
}
