package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/quota"
)

// prioritized puts n jobs of a user with a priority.
func (e *env) prioritized(n int, org, user string, class Class, p quota.Priority) {
	e.t.Helper()
	for range n {
		j := e.job("p", org, user, class, 100)
		j.Priority = p
		e.put(j)
	}
}

// picked claims n jobs one at a time, ends each, and returns their records in order.
func (e *env) picked(n int) []*Job {
	e.t.Helper()
	pc := newPacer(e.Queue, e.settings.pools()["p"], 1)
	var all []*Job
	for range n {
		got, err := pc.acquire(e.t.Context(), 1)
		if err != nil {
			e.t.Fatal(err)
		}
		if len(got.claims) == 0 {
			break
		}
		c := got.claims[0]
		j, err := e.reader.load(e.t.Context(), c.p, c.id)
		if err != nil {
			e.t.Fatal(err)
		}
		all = append(all, j)
		if err := c.finish(e.t.Context(), Succeeded, Verdict{}, ""); err != nil {
			e.t.Fatal(err)
		}
	}
	return all
}

// counts counts jobs by what `of` returns.
func counts(jobs []*Job, of func(*Job) string) map[string]int {
	n := map[string]int{}
	for _, j := range jobs {
		n[of(j)]++
	}
	return n
}

func byPriority(j *Job) string { return j.Priority.String() }
func byUser(j *Job) string     { return j.User }

// Of a user's own jobs, every fourth turn goes to the next lower priority.
func TestPrioritiesOfAUser(t *testing.T) {
	t.Parallel()
	for _, class := range []Class{Interactive, Async, Batch} {
		t.Run(class.String(), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, Options{}, Pool{ID: "p"})
			for _, p := range []quota.Priority{quota.Low, quota.Normal, quota.High} { // the best come last
				e.prioritized(40, "acme", "ann", class, p)
			}
			jobs := e.picked(32)
			got := counts(jobs, byPriority)
			if got["high"] != 24 || got["normal"] != 6 || got["low"] != 2 {
				t.Errorf("of 32 jobs %v: want 24 high, 6 normal and 2 low", got)
			}
			for i, j := range jobs[:3] {
				if j.Priority != quota.High {
					t.Errorf("job %d is %s, want high", i, j.Priority)
				}
			}
		})
	}
}

func TestTwoPrioritiesOfAUser(t *testing.T) {
	t.Parallel()
	for _, two := range [][2]quota.Priority{{quota.Normal, quota.High}, {quota.Low, quota.High}, {quota.Low, quota.Normal}} {
		t.Run(fmt.Sprint(two), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, Options{}, Pool{ID: "p"})
			e.prioritized(40, "acme", "ann", Async, two[0])
			e.prioritized(40, "acme", "ann", Async, two[1])
			got := counts(e.picked(40), byPriority)
			if got[two[1].String()] != 30 || got[two[0].String()] != 10 {
				t.Errorf("of 40 jobs %v: want 30 %s and 10 %s", got, two[1], two[0])
			}
		})
	}
}

// Among users of an org, a high job costs its user a quarter of a turn, and a low one four.
func TestPrioritiesOfUsers(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{OrgShare: 100}, Pool{ID: "p"})
	e.prioritized(200, "acme", "low", Async, quota.Low)
	e.prioritized(200, "acme", "normal", Async, quota.Normal)
	e.prioritized(200, "acme", "high", Async, quota.High)
	got := counts(e.picked(168), byUser)
	if got["high"] < 126 || got["normal"] < 31 || got["low"] < 8 {
		t.Errorf("of 168 jobs %v: want 128 of high, 32 of normal and 8 of low", got)
	}
}

// An org whose calls are all of high priority gets no turn of another org.
func TestPriorityTakesNoTurnOfOtherOrgs(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	e.prioritized(60, "loud", "ann", Async, quota.High)
	e.prioritized(60, "quiet", "bob", Async, quota.Low)
	got := counts(e.picked(60), func(j *Job) string { return j.Org })
	if got["loud"] != 30 || got["quiet"] != 30 {
		t.Errorf("of 60 jobs %v: want 30 each", got)
	}
}

// The classes keep their shares: high priority batches do not pass connected callers.
func TestClassesComeBeforePriority(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	e.prioritized(60, "acme", "batch", Batch, quota.High)
	e.prioritized(60, "acme", "ann", Interactive, quota.Low)
	got := counts(e.picked(40), func(j *Job) string { return j.Class.String() })
	if got["batch"] < 1 || got["batch"] > 3 {
		t.Errorf("of 40 jobs %v: want 5%% of batch", got)
	}
}

// Jobs with a deadline come first within their user and priority, the earliest first.
func TestEarliestDeadlineFirst(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	put := func(name string, p quota.Priority, deadline time.Duration) {
		j := e.job("p", "acme", "ann", Async, 100)
		j.Model, j.Priority = name, p
		if deadline > 0 {
			j.Deadline, j.ByDeadline = time.Now().Add(deadline), true
		}
		e.put(j)
	}
	put("none", quota.Normal, 0)
	put("late", quota.Normal, time.Hour)
	put("none again", quota.Normal, 0)
	put("early", quota.Normal, 10*time.Minute)
	put("middle", quota.Normal, 30*time.Minute)
	put("middle again", quota.Normal, 30*time.Minute)
	put("high", quota.High, 0)
	var got []string
	for _, j := range e.picked(7) {
		got = append(got, j.Model)
		if want := j.Model != "high" && j.Model[:4] != "none"; j.ByDeadline != want {
			t.Errorf("%s: ByDeadline is %t", j.Model, j.ByDeadline)
		}
	}
	want := []string{"high", "early", "middle", "middle again", "late", "none", "none again"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A position counts the jobs of higher priority as ahead, and the lower ones that have every fourth turn.
func TestPositionByPriority(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	e.prioritized(3, "acme", "ann", Async, quota.Low)
	e.prioritized(4, "acme", "ann", Async, quota.High)
	for p, want := range map[quota.Priority]int{quota.High: 5, quota.Normal: 3, quota.Low: 7} {
		j := e.job("p", "acme", "ann", Async, 100)
		j.Priority = p
		e.put(j)
		if at := e.expect(j); at.Ahead != want {
			t.Errorf("%s: %d jobs ahead, want %d", p, at.Ahead, want)
		}
		if _, err := e.Cancel(t.Context(), "acme", j.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// scarce makes a pool's quota scarce: no more calls fit for now, and jobs wait.
func (e *env) scarce(org string, p quota.Priority) {
	e.t.Helper()
	e.at(simStart)
	e.prioritized(2, org, "ann", Interactive, p)
	if got := e.claim("p", 2); len(got) != 1 {
		e.t.Fatalf("%d jobs claimed, want the first of two", len(got))
	}
}

// While jobs wait for quota, live calls leave it to those of higher priority.
func TestLiveCallsYieldToPriority(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		waiting, live quota.Priority
		org           string
		want          string
	}{
		{quota.High, quota.Normal, "acme", "priority"},
		{quota.High, quota.Low, "acme", "priority"},
		{quota.High, quota.High, "acme", ""},
		{quota.High, quota.Normal, "other", ""}, // priority is the org's own matter
		{quota.High, quota.Low, "other", "priority"},
		{quota.Normal, quota.Normal, "acme", ""},
		{quota.Normal, quota.Low, "acme", "priority"},
		{quota.Low, quota.Low, "acme", "priority"},
		{quota.Low, quota.Normal, "acme", ""},
	} {
		t.Run(fmt.Sprintf("%s waits, %s of %s", c.waiting, c.live, c.org), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, Options{Burst: 1}, Pool{ID: "p", RPM: 600})
			e.scarce("acme", c.waiting)
			e.at(simStart + time.Second) // capacity for calls again, before the next acquire
			_, err := e.Queue.Quota().Take(t.Context(), quota.Request{
				Pool: "p", ID: "c", Org: c.org, User: "bob", Tokens: 1, Priority: c.live,
			})
			got := ""
			if busy, ok := errors.AsType[*quota.BusyError](err); ok {
				got = busy.Reason
			} else if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("refused for %q, want %q", got, c.want)
			}
		})
	}
}

// The count of waiting jobs of high priority follows them: put, picked, released, cancelled.
func TestHighJobsAreCounted(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	high := func(want string) {
		t.Helper()
		if got := e.rdb.HGet(t.Context(), quota.Key("p", "size"), "h acme").Val(); got != want {
			t.Errorf("%q waiting jobs of high priority, want %q", got, want)
		}
	}
	e.prioritized(3, "acme", "ann", Interactive, quota.High)
	e.prioritized(3, "acme", "ann", Async, quota.High)
	high("3")
	c := e.claim("p", 1)[0]
	high("2")
	if err := c.release(t.Context(), Verdict{Kind: Requeue, Unused: true}, "0"); err != nil {
		t.Fatal(err)
	}
	high("3")
	if _, err := e.Cancel(t.Context(), "acme", c.id); err != nil {
		t.Fatal(err)
	}
	high("2")
	e.picked(2)
	high("")
}

// A job that an older version put has neither priority nor deadline to be served by, and comes first.
func TestJobsOfOlderVersions(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	j := e.put(e.job("p", "acme", "ann", Async, 100))
	record := e.rdb.HGetAll(t.Context(), jobKey("p", j.ID)).Val()
	old := map[string]string{"lane": record["lane"], "seq": "0000000000000007"}
	before := memberOf(j.ID, record)
	for field, value := range old {
		record[field] = value
	}
	e.rdb.HSet(t.Context(), jobKey("p", j.ID), old)
	e.rdb.ZRem(t.Context(), quota.Key("p", "wait:async"), before)
	e.rdb.ZAdd(t.Context(), quota.Key("p", "wait:async"), redis.Z{Member: memberOf(j.ID, record)})
	newer := e.put(e.job("p", "acme", "ann", Async, 100))
	jobs := e.picked(2)
	if len(jobs) != 2 || jobs[0].ID != j.ID || jobs[1].ID != newer.ID {
		t.Fatalf("picked %v, want the old job, then the new one", jobs)
	}
	if jobs[0].Priority != quota.Normal || jobs[0].ByDeadline {
		t.Errorf("the old job has priority %s, by deadline: %t", jobs[0].Priority, jobs[0].ByDeadline)
	}
}
