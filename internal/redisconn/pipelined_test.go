package redisconn_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

var count = redisconn.NewScript("return redis.call('INCR', KEYS[1])")

func pipelined(tb testing.TB, s *redistest.Server) (redis.UniversalClient, *redisconn.Coalescer) {
	rdb := driver.Open(driver.Single, driver.Options(s.Addr))
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb, redisconn.Pipelined(redistest.DB(rdb))
}

// A caller waits as long as its context allows, however unresponsive Redis is, and the
// Coalescer works again when Redis does.
func TestPipelinedObeysTheContext(t *testing.T) {
	server := redistest.Start(t)
	o := driver.Options(server.Addr)
	o.ReadTimeout, o.WriteTimeout = time.Hour, time.Hour // only the context limits the wait
	rdb := driver.Open(driver.Single, o)
	t.Cleanup(func() { _ = rdb.Close() })
	scripts := redisconn.Pipelined(redistest.DB(rdb))
	if n, err := count.Run(t.Context(), scripts, []string{"n"}).Int(); n != 1 || err != nil {
		t.Fatal(n, err) // NOSCRIPT, then EVAL
	}
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- count.Run(ctx, scripts, []string{"n"}).Err() }()
			select {
			case err := <-done:
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a stopped Redis: %v", err)
				}
			case <-time.After(time.Minute):
				t.Error("waits longer than its context")
			}
		})
	}
	redistest.Wait(t, wg.Wait)
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := count.Run(ctx, scripts, []string{"n"}).Err(); err != nil {
		t.Fatalf("Redis is back: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := count.Run(gone, scripts, []string{"never"}).Err(); !errors.Is(err, context.Canceled) {
		t.Fatalf("a caller that left: %v", err)
	}
}

// A batch's scripts are executed in order, each with its own error, and a batch waits no longer
// than its context either.
func TestBatch(t *testing.T) {
	server := redistest.Start(t)
	rdb, line := pipelined(t, server)
	if err := count.Run(t.Context(), redistest.DB(rdb), []string{"loaded"}).Err(); err != nil {
		t.Fatal(err)
	}
	if err := line.Batch().Exec(t.Context()); err != nil {
		t.Fatal("an empty batch:", err)
	}
	b := line.Batch()
	first := add(t, b, "evalsha", count.Hash(), 1, "n")
	unknown := add(t, b, "evalsha", redisconn.NewScript("return 1").Hash(), 0)
	second := add(t, b, "evalsha", count.Hash(), 1, "n")
	if err := b.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	one, err1 := first.Int()
	two, err2 := second.Int()
	if one != 1 || two != 2 || err1 != nil || err2 != nil || !redisconn.NoScript(unknown.Err()) {
		t.Fatal(one, err1, two, err2, unknown.Err())
	}

	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	b = line.Batch()
	add(t, b, "evalsha", count.Hash(), 1, "n")
	if err := b.Exec(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stopped Redis: %v", err)
	}
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// add adds a command to a batch.
func add(t *testing.T, b *redisconn.Batch, args ...any) redisconn.Reply {
	t.Helper()
	cmd := redistest.DB(nil).Command(t.Context(), args...)
	b.Add(t.Context(), cmd)
	return cmd
}

// BenchmarkScripts measures the CPU time per script of this process, with 16 callers.
func BenchmarkScripts(b *testing.B) {
	server := redistest.Start(b)
	rdb, line := pipelined(b, server)
	for name, scripts := range map[string]redisconn.Scripter{"one by one": redistest.DB(rdb), "pipelined": line} {
		b.Run(name, func(b *testing.B) {
			before := cpu(b)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						ctx, cancel := context.WithTimeout(b.Context(), time.Second)
						if err := count.Run(ctx, scripts, []string{"n"}).Err(); err != nil {
							b.Error(err)
						}
						cancel()
					}
				})
			}
			redistest.Wait(b, wg.Wait)
			b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(b.N)/1000, "cpu-us/op")
		})
	}
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
