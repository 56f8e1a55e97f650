package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tasks"
)

// The claims of a worker that vanishes are run by another one.
func TestClaimsOfADeadWorkerRunOnceMore(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Lease: time.Hour}, Pool{ID: "p"})
	var jobs []*Job
	for range 4 {
		jobs = append(jobs, e.put(e.job("p", "acme", "ann", Async, 10)))
	}
	dead := e.claim("p", 2) // never released
	if err := dead[0].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range dead { // their leases are over
		if err := e.rdb.ZAdd(t.Context(), c.p.keys[2], redis.Z{Score: 1, Member: c.id}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	runs := make(map[string]int)
	e.run(func(ctx context.Context, c *Claim) Verdict {
		mu.Lock()
		runs[c.Job.ID]++
		mu.Unlock()
		return noop(ctx, c)
	}, WorkerOptions{})
	for i, j := range jobs {
		redistest.Eventually(t, "job succeeded", func() bool { return e.state(j) == Succeeded })
		got, _ := e.Job(t.Context(), "acme", j.ID)
		want := 1
		if i == 0 {
			want = 2 // the dead attempt had started
		}
		if got.Attempt != want || got.Tries != want {
			t.Errorf("job %d: attempt %d, tries %d, want %d", i, got.Attempt, got.Tries, want)
		}
	}
	for id, n := range runs {
		if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
}

// A run whose claim was taken over by another worker is cancelled.
func TestLostClaimCancelsTheRun(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Lease: 900 * time.Millisecond}, Pool{ID: "p"})
	causes := make(chan error, 1)
	stop := e.run(func(ctx context.Context, c *Claim) Verdict {
		if err := c.Start(ctx); err != nil {
			return Verdict{Kind: Requeue}
		}
		e.rdb.HDel(ctx, c.p.keys[3], c.id) // as after a reap
		<-ctx.Done()
		select {
		case causes <- context.Cause(ctx):
		default: // the second time
		}
		return Verdict{Kind: Done}
	}, WorkerOptions{ShutdownTimeout: time.Millisecond})
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	if err := redistest.Came(t, causes); !errors.Is(err, ErrLost) {
		t.Errorf("the run was cancelled by %v, want %v", err, ErrLost)
	}
	stop() // its verdict has been given by now
	if s := e.state(j); s.Terminal() {
		t.Errorf("the loser ended the job: it is %s", s)
	}
}

// A worker finds jobs without a notification, such as those put by an older version, in
// quiet pools too.
func TestLostCallsAreHealed(t *testing.T) {
	t.Parallel()
	var pools []Pool
	for i := range 20 {
		pools = append(pools, Pool{ID: fmt.Sprint("p", i)})
	}
	e := newEnv(t, Options{}, pools...)
	e.run(noop, WorkerOptions{})
	redistest.Eventually(t, "pools quiet", func() bool {
		for _, p := range e.settings.pools() {
			if !p.quiet() {
				return false
			}
		}
		return true
	})
	proxy := envOn(t, e.srv, Options{}, pools...)
	var jobs []*Job
	for _, p := range proxy.settings.pools() {
		p.puts.common[len(p.puts.common)-1] = "nobody listens"
		jobs = append(jobs, proxy.put(proxy.job(p.ID, "acme", "ann", Async, 10)))
	}
	for _, j := range jobs {
		redistest.Eventually(t, "job succeeded", func() bool { return e.state(j) == Succeeded })
	}
}

// Jobs put by an older version, which adds no turns, or tickets on an asynq queue of the pool, are run, and the
// tickets are removed.
func TestJobsOfOlderVersionsRun(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	e.settings.pools()["p"].puts.common[len(e.settings.pools()["p"].puts.common)-1] = "nobody listens"
	old := asynq.NewClientFromRedisClient(e.rdb)
	var jobs []*Job
	for range 3 {
		jobs = append(jobs, e.put(e.job("p", "acme", "ann", Async, 10)))
	}
	e.rdb.Del(t.Context(), tasks.Key("p", "pending"))
	for range 5 {
		if _, err := old.Enqueue(asynq.NewTask("ticket", nil), asynq.Queue("p")); err != nil {
			t.Fatal(err)
		}
	}
	e.run(noop, WorkerOptions{})
	for _, j := range jobs {
		redistest.Eventually(t, "job succeeded", func() bool { return e.state(j) == Succeeded })
	}
	redistest.Eventually(t, "tickets gone", func() bool { return e.shown() == tally{} })
}

func TestPanicCountsAsAttempt(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{MaxAttempts: 2}, Pool{ID: "p"})
	var runs atomic.Int32
	e.run(func(ctx context.Context, c *Claim) Verdict {
		if runs.Add(1) > 1 {
			if err := c.Start(ctx); err != nil {
				return Verdict{}
			}
		}
		panic("poison")
	}, WorkerOptions{})
	poison := e.put(e.job("p", "acme", "ann", Async, 10))
	redistest.Eventually(t, "poison ended", func() bool { return e.state(poison) == Failed })
	got, _ := e.Job(t.Context(), "acme", poison.ID)
	if got.Code != "attempts_exhausted" || got.Tries != 2 || got.Attempt != 1 {
		t.Errorf("job is %+v", got)
	}
}

// A job that is running when its worker must end gets the shutdown timeout to end.
func TestShutdownLetsJobsEnd(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx, shutDown := context.WithCancel(t.Context())
	began, release := make(chan struct{}), make(chan struct{})
	wait := e.start(ctx, func(ctx context.Context, c *Claim) Verdict {
		if err := c.Start(ctx); err != nil {
			return Verdict{Kind: Requeue}
		}
		close(began)
		redistest.Came(t, release)
		select {
		case <-ctx.Done():
			return Verdict{Kind: Requeue}
		case <-time.After(50 * time.Millisecond): // time for a worker that would cancel it immediately
			return Verdict{Kind: Done}
		}
	}, WorkerOptions{ShutdownTimeout: time.Hour})
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	redistest.Came(t, began)
	shutDown()
	close(release)
	wait()
	if s := e.state(j); s != Succeeded {
		t.Errorf("the job is %s, want %s", s, Succeeded)
	}
}

// A job that does not end within the shutdown timeout is cancelled and waits again.
func TestShutdownCancelsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	began, cause := make(chan struct{}), make(chan error, 1)
	stop := e.run(func(ctx context.Context, c *Claim) Verdict {
		if err := c.Start(ctx); err != nil {
			return Verdict{Kind: Requeue}
		}
		close(began)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return Verdict{Kind: Requeue}
	}, WorkerOptions{ShutdownTimeout: 50 * time.Millisecond})
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	redistest.Came(t, began)
	stop()
	if err := redistest.Came(t, cause); !errors.Is(err, ErrShutdown) {
		t.Errorf("the run was cancelled by %v, want %v", err, ErrShutdown)
	}
	if s := e.state(j); s != Queued {
		t.Errorf("the job is %s, want %s", s, Queued)
	}
}

// Redis is killed with SIGKILL and comes back while jobs are put and drained. With AOF
// every job ends once.
//
// The test uses fsync always, where Redis writes its file before it answers. With everysec,
// writes acknowledged during an fsync are still in memory and lost in a kill.
func TestRedisRestartMidDrain(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	e := envOn(t, srv, Options{Lease: 10 * time.Minute}, Pool{ID: "p", MaxJobs: -1, RPM: 100_000})
	var mu sync.Mutex
	finished := make(map[string]int)
	e.run(func(ctx context.Context, c *Claim) Verdict {
		v := Verdict{Kind: Requeue, Unused: true}
		if c.Recovered != nil {
			v = *c.Recovered
		} else if err := c.Start(ctx); err == nil {
			time.Sleep(5 * time.Millisecond)
			_, _ = c.Output().Write([]byte("x"))
			v = Verdict{Kind: Done}
		}
		if v.Kind == Done {
			mu.Lock()
			finished[c.Job.ID]++
			mu.Unlock()
		}
		return v
	}, WorkerOptions{Concurrency: map[string]int{"p": 16}})
	var put []*Job
	for i := range 300 {
		if i == 100 || i == 200 {
			srv.Kill()
			time.Sleep(50 * time.Millisecond) // some of the work meets an unreachable Redis
			srv.Restart()
		}
		j := e.job("p", fmt.Sprintf("o%d", i%3), "u", Async, 1)
		redistest.Eventually(t, "the job is put", func() bool { return e.Put(t.Context(), j, []byte("{}")) == nil })
		put = append(put, j)
	}
	for _, j := range put {
		redistest.Eventually(t, "job succeeded", func() bool {
			got, err := e.Job(t.Context(), j.Org, j.ID)
			return err == nil && got.State == Succeeded
		})
	}
	mu.Lock()
	defer mu.Unlock()
	for _, j := range put {
		if finished[j.ID] != 1 {
			t.Errorf("%s was done %d times", j.ID, finished[j.ID])
		}
	}
	d, err := e.Depth(t.Context(), "p")
	if err != nil || d.Jobs != 0 || d.Claims != 0 || d.Waiting != [4]int64{} || d.WaitingTokens != [4]int64{} {
		t.Errorf("left behind: %+v, %v", d, err)
	}
}

// Without Redis a worker polls slowly, not as fast as it can. The test uses virtual time,
// so that the machine has no influence on how often that is.
func TestAbsentRedisIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
		var asked atomic.Int64
		rdb.AddHook(counting{&asked})
		q, err := New(redistest.DB(rdb), []Pool{{ID: "p"}}, Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wait := (&env{Queue: q, t: t}).start(ctx, noop, WorkerOptions{Concurrency: map[string]int{"p": 8}})
		wait()
		_ = rdb.Close()
		time.Sleep(2 * time.Second) // its pool dials the server once a second
		if n := asked.Load(); n > 60*20 || n == 0 {
			t.Errorf("asked an absent Redis %d times in a minute, want at most 20 a second", n)
		}
	})
}

// counting counts the commands and pipelines sent.
type counting struct{ n *atomic.Int64 }

func (c counting) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.n.Add(1); return next(ctx, cmd) }
}

func (c counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.n.Add(1); return next(ctx, cmds) }
}

// A parked job runs when it wakes, without the regular check for work.
func TestParkedJobRunsAtItsWake(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	e.probe = time.Hour
	var runs atomic.Int32
	e.run(func(ctx context.Context, c *Claim) Verdict {
		if runs.Add(1) < 8 {
			return Verdict{Kind: Park, Wait: 20 * time.Millisecond, Scope: ParkOrg, Unused: true}
		}
		return noop(ctx, c)
	}, WorkerOptions{})
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	redistest.Eventually(t, "job succeeded", func() bool { return e.state(j) == Succeeded })
}
