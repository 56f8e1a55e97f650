package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/quota"
)

// TestETAsOfOneLimit: six jobs, of which a limit admits one in 10 s, run 10 s after each other, and a pool
// without a quota is not what they wait for. So do a few of more jobs than a forecast has.
func TestETAsOfOneLimit(t *testing.T) {
	t.Parallel()
	w := newCrew(t, redistest.Start(t), 1, 0)
	w.add(mustPool(t, w.opts, Pool{ID: "plain", MaxJobs: -1}))
	w.p = w.settings.pools()["plain"]
	for _, org := range w.rooms.Policy.Orgs {
		org.Limits = []budget.Limit{{ID: "w", Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{
			Kind: budget.ExactWindow, Amount: 100_000, Window: 10 * time.Second,
		}}}
	}
	w.rooms.Policy.Caps = nil
	var jobs []*Job
	put := func(n int) {
		for range n {
			j := w.job("plain", "o0-0", "ann", Async, 10)
			j.Cost = 100_000
			jobs = append(jobs, w.put(j))
		}
	}
	check := func(of ...int) {
		t.Helper()
		w.forecasts.pools = map[string]*poolForecast{}
		for _, i := range of {
			at, err := w.Expect(t.Context(), w.rooms, jobs[i])
			by, want := budget.Cause("limit:w"), time.Duration(i)*10*time.Second
			if i == 0 {
				by = ForWorker
			}
			if err != nil || at.Ahead != i || (at.ETA-want).Abs() > max(want/20, time.Second) || at.Cause != by {
				t.Errorf("job %d: %d ahead, %s for %s, %v; want %s for %s", i, at.Ahead, at.ETA, at.Cause, err, want, by)
			}
		}
	}
	put(6)
	check(0, 1, 2, 3, 4, 5)
	put(forecastJobs)
	check(5, 500, forecastJobs, forecastJobs+5)
}

// TestETAsForeseeTheEndOfARaise: a limit that admits three jobs in 10 s until a raise ends after 15 s, and then one.
func TestETAsForeseeTheEndOfARaise(t *testing.T) {
	t.Parallel()
	w := newCrew(t, redistest.Start(t), 1, 0)
	w.add(mustPool(t, w.opts, Pool{ID: "plain", MaxJobs: -1}))
	w.rooms.Policy.Caps = nil
	w.rooms.Policy.Orgs["o0-0"].Limits = []budget.Limit{{
		ID: "w", Subject: budget.Org, Metric: budget.Cost,
		Shape:  budget.Shape{Kind: budget.ExactWindow, Amount: 100_000, Window: 10 * time.Second},
		Raises: []budget.Raise{{Amount: 300_000, Until: time.UnixMicro(w.now).Add(15 * time.Second)}},
	}}
	var jobs []*Job
	for range 8 {
		j := w.job("plain", "o0-0", "ann", Async, 10)
		j.Cost = 100_000
		jobs = append(jobs, w.put(j))
	}
	for i, want := range []time.Duration{0, 0, 0, 10, 10, 10, 20, 30} {
		at, err := w.Expect(t.Context(), w.rooms, jobs[i])
		if err != nil || (at.ETA-want*time.Second).Abs() > time.Second {
			t.Errorf("job %d: %s, %v; want %d s", i, at.ETA, err, want)
		}
	}
}

// TestBefore: before a job run higher classes, jobs of its user with higher priority or an older place, and of each
// other user as many as have their turn. Of jobs that no time lets run, also those that come first.
func TestBefore(t *testing.T) {
	t.Parallel()
	w := newCrew(t, redistest.Start(t), 1, 0)
	w.add(mustPool(t, w.opts, Pool{ID: "plain", MaxJobs: -1}))
	names := map[string]string{}
	put := func(name, user string, class Class, p quota.Priority) *Job {
		j := w.job("plain", "o0-0", user, class, 10)
		j.Priority, j.Cost = p, 100_000
		names[j.ID] = name
		return w.put(j)
	}
	put("old", "ann", Async, quota.Normal)
	for i := range 3 {
		put(fmt.Sprint("bob-", i), "bob", Async, quota.Normal)
	}
	put("line", "ann", Batch, quota.High)
	put("low", "ann", Async, quota.Low)
	j := put("j", "ann", Async, quota.Normal)
	last := put("new", "ann", Async, quota.Low)
	put("high", "ann", Async, quota.High)
	put("live", "cat", Interactive, quota.Normal)
	check := func(of *Job, want string) {
		t.Helper()
		w.forecasts.pools = map[string]*poolForecast{}
		at, err := w.Expect(t.Context(), w.rooms, of)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, id := range at.Before() {
			got = append(got, names[id])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	w.rooms.Policy.Caps = nil
	for _, org := range w.rooms.Policy.Orgs {
		org.Limits = nil
	}
	check(j, "live high bob-0 old bob-1")
	w.rooms.Policy.Orgs["o0-0"].Limits = []budget.Limit{{ID: "b", Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{
		Kind: budget.Bucket, Amount: 250_000, // without a refill
	}}}
	check(j, "live high bob-0 old bob-1")
	check(last, "live high bob-0 old bob-1 j bob-2 low")
}

func mustPool(t *testing.T, o Options, cfg Pool) *pool {
	t.Helper()
	p, err := newPool(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestETAsComeTrue: of the waits in random stories, 95 of 100 end within 20 % or 5 s of what was told.
func TestETAsComeTrue(t *testing.T) {
	t.Parallel()
	srv, seed := redistest.Start(t), randtest.Seed(t)
	waits, wrong := 0, 0
	for i := 0; waits < randtest.Rounds(1000, 10_000); i++ {
		w := newCrew(t, srv, seed, i)
		off, n, err := w.errorsOf(t.Context())
		if err != nil {
			t.Fatalf("LLMGUARD_SEED=%d story %d: %v", seed, i, err)
		}
		waits, wrong = waits+n, wrong+len(off)
		if len(off) > 0 {
			t.Logf("story %d: %d of %d, took %s, share %d, %+v,%s:\n%s", i, len(off), n, w.took, w.share,
				w.p.Pool, w.cause, strings.Join(off, "\n"))
		}
	}
	t.Logf("%d of %d ETAs were wrong", wrong, waits)
	if wrong*20 > waits {
		t.Errorf("LLMGUARD_SEED=%d: %d of %d ETAs were wrong, want at most 5 %%", seed, wrong, waits)
	}
}
