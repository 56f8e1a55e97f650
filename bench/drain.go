package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/llmguard/llmguard/bench/child"
	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/goredis"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// drain measures the queue within this process. Jobs with 2 KB bodies go through put, acquire,
// hold, start and settle to done, with an empty handler, in a pool without quota. It also
// measures the latency of a job in an idle queue.
type drain struct {
	redis    *child.Process
	rdb      *redis.Client
	queue    *queue.Queue
	store    *budget.Store
	handlers int
	done     atomic.Int64
	began    chan time.Time // when jobs of idle started
}

const drainPool = "bench"

// putters is how many goroutines submit jobs. With few of them the queue would wait for jobs.
const putters = 64

// drainRound is one round's result.
type drainRound struct {
	both, rest drained // submit and drain concurrently; drain only
	p50, p95   time.Duration
	asynq      float64 // tasks per second of asynq alone
}

// drained is the rate of a drain and the CPU time per job.
type drained struct {
	rate       float64       // jobs per second
	redis, own time.Duration // CPU time per job, of redis-server and of this process
}

func (d drained) String() string {
	return fmt.Sprintf("%.0f | %d | %d", d.rate, d.redis.Microseconds(), d.own.Microseconds())
}

// drains measures the queue once per round, on its own Redis.
func (b *bench) drains(ctx context.Context, out io.Writer) error {
	var err error
	b.redis, err = b.startRedis(ctx)
	if err != nil {
		return err
	}
	defer b.redis.Stop()
	fmt.Fprintf(out, "\n| queue | put and drain, jobs/s | Redis us | own us | drain, jobs/s | Redis us | own us | idle "+
		"p50 | idle p95 | asynq alone, tasks/s |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for round := range b.rounds {
		r, err := b.drainRound(ctx, b.jobs)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "| round %d | %s | %s | %.1f ms | %.1f ms | %.0f |\n", round+1, r.both, r.rest,
			float64(r.p50.Microseconds())/1000, float64(r.p95.Microseconds())/1000, r.asynq)
	}
	return nil
}

func (b *bench) drainRound(ctx context.Context, n int) (r drainRound, err error) {
	d := &drain{
		redis: b.redis, rdb: redis.NewClient(&redis.Options{Addr: b.redis.Addr, PoolSize: 64}), handlers: b.handlers,
		began: make(chan time.Time, 1),
	}
	defer d.rdb.Close()
	r.asynq, err = d.bareAsynq(ctx, n)
	if err != nil {
		return r, err
	}
	if err := d.open(ctx); err != nil {
		return r, err
	}
	r.both, err = d.run(ctx, n, false)
	if err != nil {
		return r, err
	}
	r.rest, err = d.run(ctx, n, true)
	if err != nil {
		return r, err
	}
	r.p50, r.p95, err = d.idle(ctx, min(n, 100))
	return r, err
}

func (d *drain) open(ctx context.Context) error {
	if err := d.rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	rdb := goredis.New(d.rdb)
	scripts := redisconn.Joined(rdb, budget.Join(rdb))
	quiet := slog.New(slog.DiscardHandler)
	d.store = budget.New(rdb, budget.Options{Scripts: scripts, Log: quiet})
	var err error
	d.queue, err = queue.New(rdb, []queue.Pool{{ID: drainPool, MaxJobs: -1, MaxBytes: -1}},
		queue.Options{Scripts: scripts, Log: quiet})
	return err
}

// limits returns the two limits that every job is held against.
func (d *drain) limits() []budget.Limit {
	shape := budget.Shape{Kind: budget.Window, Amount: 1 << 50, Window: time.Hour}
	return []budget.Limit{
		{ID: "org", Subject: budget.Org, Metric: budget.Cost, Shape: shape},
		{ID: "user", Subject: budget.User, Metric: budget.Cost, Shape: shape},
	}
}

// handle does everything of a paid call except the call.
func (d *drain) handle(ctx context.Context, c *queue.Claim) queue.Verdict {
	defer d.done.Add(1)
	retry := queue.Verdict{Kind: queue.Requeue, Unused: true}
	who := ledger.Call{
		ID: wire.NewCallID(), Attempt: 1, Org: c.Job.Org, User: c.Job.User, Key: "k", Model: "m",
		Provider: "p", JobID: c.Job.ID,
	}
	most := budget.Amounts{Cost: 1000, Tokens: 100}
	hold, err := d.store.Hold(ctx, budget.Terms{Limits: d.limits(), Call: who, Max: most, Expected: most})
	if err != nil || c.Start(ctx) != nil {
		return retry
	}
	if _, err := d.store.Settle(ctx, hold,
		budget.Settlement{Actual: most, Outcome: "completed", Status: 200}); err != nil {
		return retry
	}
	return queue.Verdict{Kind: queue.Done, Status: 200}
}

// put submits n jobs of 20 orgs with 5 users each, from putters goroutines.
func (d *drain) put(ctx context.Context, n int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(putters)
	body := make([]byte, 2048)
	for i := range n {
		g.Go(func() error { return d.queue.Put(ctx, d.job(i), body) })
	}
	return g.Wait()
}

func (d *drain) job(i int) *queue.Job {
	return &queue.Job{
		ID: d.queue.NewID(drainPool), Pool: drainPool, Org: fmt.Sprintf("o%d", i%20), User: fmt.Sprintf("u%d", i%5), Key: "k",
		Class: queue.Async, Tokens: 100, Endpoint: wire.ChatCompletions, Model: "m", CallID: wire.NewCallID(),
	}
}

// work runs the queue and a worker until stop is called.
func (d *drain) work(ctx context.Context, handle func(context.Context, *queue.Claim) queue.Verdict) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = d.queue.Run(ctx) })
	o := queue.WorkerOptions{Concurrency: map[string]int{drainPool: d.handlers}}
	wg.Go(func() { _ = queue.NewWorker(d.queue, handle, o).Run(ctx) })
	return func() { cancel(); wg.Wait() }
}

// run drains n jobs; first submits all of them before the clock starts.
func (d *drain) run(ctx context.Context, n int, first bool) (drained, error) {
	d.done.Store(0)
	if first {
		if err := d.put(ctx, n); err != nil {
			return drained{}, err
		}
	}
	used, err := d.used()
	if err != nil {
		return drained{}, err
	}
	start := time.Now()
	stop := d.work(ctx, d.handle)
	defer stop()
	if !first {
		if err := d.put(ctx, n); err != nil {
			return drained{}, err
		}
	}
	for d.done.Load() < int64(n) {
		if time.Since(start) > 5*time.Minute {
			return drained{}, errors.New("the queue does not drain")
		}
		time.Sleep(time.Millisecond)
	}
	return d.cost(start, used, n)
}

// used returns the CPU time of redis-server and of this process so far.
func (d *drain) used() (used [2]time.Duration, err error) {
	used[0], err = d.redis.CPU()
	if err != nil {
		return used, err
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return used, err
	}
	used[1] = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	return used, nil
}

// cost computes the rate and the CPU time per job since start.
func (d *drain) cost(start time.Time, before [2]time.Duration, n int) (drained, error) {
	took := time.Since(start)
	after, err := d.used()
	each := time.Duration(n)
	return drained{
		rate:  float64(n) / took.Seconds(),
		redis: (after[0] - before[0]) / each,
		own:   (after[1] - before[1]) / each,
	}, err
}

// idle returns quantiles of the time from submission to the handler in an otherwise empty
// queue.
func (d *drain) idle(ctx context.Context, n int) (p50, p95 time.Duration, err error) {
	stop := d.work(ctx, func(ctx context.Context, c *queue.Claim) queue.Verdict {
		d.began <- time.Now()
		return d.handle(ctx, c)
	})
	defer stop()
	took := make([]time.Duration, n)
	for i := range took {
		time.Sleep(time.Duration(20+rand.IntN(40)) * time.Millisecond)
		start := time.Now()
		if err := d.queue.Put(ctx, d.job(i), make([]byte, 2048)); err != nil {
			return 0, 0, err
		}
		took[i] = (<-d.began).Sub(start)
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*95/100], nil
}
