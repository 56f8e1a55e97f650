package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// BenchmarkDrain measures jobs with 2 KB bodies from put through ticket,
// acquire and start to finish, with a runner that answers at once, on a Redis
// with AOF everysec. "drain" puts first and times the rest; "all" times both,
// overlapping.
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
				wg.Wait()
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
			before := commands(b, e)
			b.ResetTimer()
			stop := e.run(runner, WorkerOptions{})
			if overlap {
				put()
			}
			<-all
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			b.ReportMetric(float64(commands(b, e)-before)/float64(b.N), "cmds/job")
			stop()
		})
	}
}

// commands counts what Redis has processed.
func commands(b *testing.B, e *env) int64 {
	info, err := e.rdb.InfoMap(b.Context(), "stats").Result()
	if err != nil {
		b.Fatal(err)
	}
	var n int64
	_, _ = fmt.Sscan(info["Stats"]["total_commands_processed"], &n)
	return n
}

// BenchmarkIdleLatency measures put to the start of the runner on a pool that
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
		took = append(took, (<-began).Sub(start))
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
