package queue

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

// tally is what the queue, or asynq's Inspector say of a pool.
type tally struct{ waiting, running, resting, dead int }

// shown returns the tally of the pool p of asynq's Inspector.
func (e *env) shown() tally {
	e.t.Helper()
	info, err := asynq.NewInspectorFromRedisClient(e.rdb).GetQueueInfo("p")
	if err != nil {
		return tally{}
	}
	return tally{info.Pending, info.Active, info.Retry + info.Scheduled, info.Archived}
}

// actual returns the tally of the pool p of the queue's records.
func (e *env) actual() tally {
	e.t.Helper()
	d, err := e.Depth(e.t.Context(), "p")
	if err != nil {
		e.t.Fatal(err)
	}
	waiting := d.Waiting[Interactive] + d.Waiting[Async] + d.Waiting[Batch]
	return tally{int(waiting), int(d.Claims), int(d.Jobs - d.Claims - waiting), int(d.Dead)}
}

// TestInspectorShowsTheJobs: while jobs run, rest, fail, are cancelled and lose their workers, asynq's Inspector
// shows as many tasks in each state as the queue has jobs.
func TestInspectorShowsTheJobs(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Lease: 3 * time.Second, RetryFor: time.Hour}, Pool{ID: "p"})
	block := make(chan struct{})
	var blocked atomic.Bool
	blocked.Store(true)
	runner := func(ctx context.Context, c *Claim) Verdict {
		if err := c.Start(ctx); err != nil {
			return Verdict{Kind: Requeue}
		}
		switch c.Job.User {
		case "rests":
			return Verdict{Kind: Retry, Wait: time.Hour, Failed: true}
		case "dies":
			return Verdict{Kind: Fail, Error: wire.Internal(fmt.Errorf("x"))}
		case "runs":
			if blocked.Load() {
				select {
				case <-block:
				case <-ctx.Done():
				}
			}
		}
		return Verdict{Kind: Done}
	}
	put := func(n int, users ...string) (jobs []*Job) {
		for i := range n {
			jobs = append(jobs, e.put(e.job("p", "acme", users[i%len(users)], Async, 10)))
		}
		return jobs
	}
	put(40, "rests", "dies")
	if got, want := e.shown(), (tally{waiting: 40}); got != want {
		t.Errorf("before a worker runs Inspector shows %+v, want %+v", got, want)
	}
	stop := e.run(runner, WorkerOptions{Concurrency: map[string]int{"p": 8}, ShutdownTimeout: time.Millisecond})
	same := func(what string, want tally) {
		t.Helper()
		var shown, actual tally
		defer func() {
			if t.Failed() {
				t.Logf("%s: Inspector shows %+v, the queue has %+v, want %+v", what, shown, actual, want)
			}
		}()
		redistest.Eventually(t, what, func() bool {
			shown, actual = e.shown(), e.actual()
			return shown == want && actual == want
		})
	}
	same("all have run", tally{resting: 20, dead: 20})
	jobs := put(28, "runs")
	same("8 run", tally{running: 8, waiting: 20, resting: 20, dead: 20})
	for _, j := range jobs {
		if e.state(j) == Queued {
			if _, err := e.Cancel(t.Context(), "acme", j.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	same("waiting jobs are cancelled", tally{running: 8, resting: 20, dead: 20})
	dead, _, err := e.DeadLetters(t.Context(), "p", "", 5)
	if err != nil || len(dead) != 5 {
		t.Fatalf("%d dead letters (%v), want 5", len(dead), err)
	}
	for _, j := range dead {
		if _, err := e.Replay(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
	}
	same("dead letters are replayed", tally{running: 8, waiting: 5, resting: 20, dead: 15})
	if err := e.rdb.ScriptFlush(t.Context()).Err(); err != nil { // after a restart Redis knows no scripts
		t.Fatal(err)
	}
	dead, _, err = e.DeadLetters(t.Context(), "p", "", 1)
	if err != nil || len(dead) != 1 {
		t.Fatalf("%d dead letters (%v), want 1", len(dead), err)
	}
	if err := asynq.NewInspectorFromRedisClient(e.rdb).RunTask("p", dead[0].ID); err != nil {
		t.Fatal(err)
	}
	same("an archived task is run", tally{running: 8, waiting: 6, resting: 20, dead: 14})
	if err := e.rdb.Del(t.Context(), "asynq:{p}:pending").Err(); err != nil {
		t.Fatal(err)
	}
	same("lost tasks are replaced", tally{running: 8, waiting: 6, resting: 20, dead: 14})
	stop()
	same("no worker runs", tally{waiting: 6, resting: 20, dead: 14})
}
