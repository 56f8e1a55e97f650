package queue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// BenchmarkDrain measures jobs with 2 KB bodies from put through acquire and start to
// finish, with a runner that answers immediately, on a Redis with AOF everysec. "drain"
// puts first and times the rest; "all" times both, overlapping.
func BenchmarkDrain(b *testing.B) {
	for _, overlap := range []bool{false, true} {
		name := "drain"
		if overlap {
			name = "all"
		}
		b.Run(name, func(b *testing.B) {
			srv := redistest.Start(b, redistest.WithAOF())
			e := envOn(b, srv, Options{}, Pool{ID: "p", MaxJobs: -1, MaxBytes: -1})
			body := make([]byte, 2048)
			put := func() {
				var wg sync.WaitGroup
				for g := range 16 {
					wg.Go(func() {
						for i := g; i < b.N; i += 16 {
							j := e.job("p", fmt.Sprintf("o%d", i%20), fmt.Sprintf("u%d", i%5), Async, 100)
							if err := e.Put(b.Context(), j, body); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				redistest.Wait(b, wg.Wait)
			}
			var done atomic.Int64
			all := make(chan struct{})
			runner := func(ctx context.Context, c *Claim) Verdict {
				if c.Start(ctx) != nil {
					return Verdict{Kind: Requeue}
				}
				if done.Add(1) == int64(b.N) {
					close(all)
				}
				return Verdict{Kind: Done}
			}
			if !overlap {
				put()
			}
			before, ourCPU, redisCPU := stat(b, e, "stats", "total_commands_processed"), cpu(), redisTime(b, e)
			b.ResetTimer()
			stop := e.run(runner, WorkerOptions{})
			if overlap {
				put()
			}
			redistest.Came(b, all)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			b.ReportMetric((stat(b, e, "stats", "total_commands_processed")-before)/float64(b.N), "cmds/job")
			b.ReportMetric(1e6*(cpu()-ourCPU)/float64(b.N), "cpu-us/job")
			b.ReportMetric(1e6*(redisTime(b, e)-redisCPU)/float64(b.N), "redis-us/job")
			stop()
		})
	}
}

// stat reads a number from Redis's INFO.
func stat(b *testing.B, e *env, section, name string) float64 {
	info, err := e.rdb.InfoMap(b.Context(), section).Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, fields := range info {
		if text, ok := fields[name]; ok {
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatalf("INFO %s has no %s", section, name)
	return 0
}

// redisTime and cpu return the CPU seconds of Redis and of this process.
func redisTime(b *testing.B, e *env) float64 {
	return stat(b, e, "cpu", "used_cpu_user") + stat(b, e, "cpu", "used_cpu_sys")
}

func cpu() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkIdleLatency measures the time from put to the start of the runner on a pool that
// has been idle.
func BenchmarkIdleLatency(b *testing.B) {
	e := newEnv(b, Options{}, Pool{ID: "p"})
	began := make(chan time.Time, 1)
	stop := e.run(func(ctx context.Context, c *Claim) Verdict {
		began <- time.Now()
		return noop(ctx, c)
	}, WorkerOptions{})
	defer stop()
	var took []time.Duration
	for b.Loop() {
		time.Sleep(50 * time.Millisecond)
		start := time.Now()
		e.put(e.job("p", "acme", "ann", Async, 10))
		took = append(took, redistest.Came(b, began).Sub(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
}

// BenchmarkTake measures a live grant and its return.
func BenchmarkTake(b *testing.B) {
	e := newEnv(b, Options{}, Pool{ID: "p", RPM: 1e9, TPM: 1e12, Concurrency: 1000})
	var n atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			g, err := e.Take(b.Context(), "p", fmt.Sprint("c", n.Add(1)), Flow{"acme", "ann"}, 100)
			if err != nil {
				b.Error(err)
				return
			}
			if err := e.Give(b.Context(), g, false); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkFairness drains the backlogs of a hog and twenty heavy orgs at 100 requests a
// second for half a minute, while five light orgs put a job a second each. It reports the
// wait of the light orgs and the use of the quota.
func BenchmarkFairness(b *testing.B) {
	e := newEnv(b, Options{OrgShare: 100, Burst: 10}, Pool{ID: "p", RPM: 6000, MaxJobs: -1})
	const seconds = 30
	for i := range 3000 {
		e.put(e.job("p", "hog", "u", Async, 100))
		e.put(e.job("p", fmt.Sprintf("heavy%d", i%20), "u", Async, 100))
	}
	var mu sync.Mutex
	var waits []time.Duration
	var started []booked
	stop := e.run(func(ctx context.Context, c *Claim) Verdict {
		if c.Start(ctx) != nil {
			return Verdict{Kind: Requeue}
		}
		mu.Lock()
		started = append(started, booked{time.Duration(c.Job.Started.UnixNano()), 1})
		if c.Job.Class == Async && c.Job.User == "light" {
			waits = append(waits, c.Job.Waited())
		}
		mu.Unlock()
		return Verdict{Kind: Done}
	}, WorkerOptions{})
	b.ResetTimer()
	for i := range seconds * 5 {
		e.put(e.job("p", fmt.Sprintf("light%d", i%5), "light", Async, 100))
		time.Sleep(200 * time.Millisecond)
	}
	b.StopTimer()
	used := float64(len(started)) / (100 * b.Elapsed().Seconds())
	stop()
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Milliseconds()), "light-p50-ms")
	b.ReportMetric(float64(waits[len(waits)*95/100].Milliseconds()), "light-p95-ms")
	b.ReportMetric(100*used, "%quota")
	checkWindows(b, started, Pool{RPM: 6000})
}
