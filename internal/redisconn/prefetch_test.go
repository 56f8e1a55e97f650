package redisconn_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

// flights counts the commands of each batch that was sent.
type flights struct {
	mu   sync.Mutex
	sent []int
}

func (f *flights) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *flights) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f *flights) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "evalsha" { // and not the commands that open a connection
			f.mu.Lock()
			f.sent = append(f.sent, len(cmds))
			f.mu.Unlock()
		}
		return next(ctx, cmds)
	}
}

func (f *flights) are(t *testing.T, want ...int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.sent, want) {
		t.Errorf("flights of %v commands, want %v", f.sent, want)
	}
}

// aheadOn returns a Coalescer on which the script is loaded, and the batches that it sends.
func aheadOn(t *testing.T, s *redistest.Server) (*redisconn.Coalescer, *flights) {
	t.Helper()
	o := driver.Options(s.Addr)
	o.ReadTimeout, o.WriteTimeout = time.Hour, time.Hour // only the context limits the wait
	rdb := driver.Open(driver.Single, o)
	t.Cleanup(func() { _ = rdb.Close() })
	if err := count.Run(t.Context(), redistest.DB(rdb), []string{"loaded"}).Err(); err != nil {
		t.Fatal(err)
	}
	f := &flights{}
	rdb.AddHook(f)
	return redisconn.Pipelined(redistest.DB(rdb)), f
}

func counted(t *testing.T, a *redisconn.Prefetch) int {
	t.Helper()
	cmd, err := a.Wait(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	n, err := cmd.Int()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A prefetched script is sent with the next script, before it, or when it is waited for.
func TestAhead(t *testing.T) {
	line, sent := aheadOn(t, redistest.Start(t))
	a := line.Prefetch(t.Context(), count.Hash(), []string{"n"})
	if sent.are(t); a.Came() {
		t.Error("it left by itself")
	}
	if n, err := count.Run(t.Context(), line, []string{"n"}).Int(); n != 2 || err != nil {
		t.Error(n, err)
	}
	sent.are(t, 2)
	if !a.Came() || counted(t, a) != 1 || a.Cancel() {
		t.Error("it has no reply of the flight it was in")
	}
	if n := counted(t, line.Prefetch(t.Context(), count.Hash(), []string{"n"})); n != 3 {
		t.Error(n)
	}
	sent.are(t, 2, 1)
}

// A script that was cancelled, or whose context was done, before it was sent is never sent.
func TestAheadCancelled(t *testing.T) {
	line, sent := aheadOn(t, redistest.Start(t))
	ctx, cancel := context.WithCancel(t.Context())
	first := line.Prefetch(t.Context(), count.Hash(), []string{"n"})
	second := line.Prefetch(ctx, count.Hash(), []string{"n"})
	third := line.Prefetch(t.Context(), count.Hash(), []string{"n"})
	cancel()
	if !first.Cancel() {
		t.Error("it cannot be cancelled")
	}
	if n := counted(t, third); n != 1 {
		t.Error(n)
	}
	sent.are(t, 1)
	if _, err := second.Wait(t.Context(), time.Minute); !errors.Is(err, context.Canceled) || !second.Cancel() {
		t.Error(err)
	}
}

// Waiting for a prefetched script ends after the given time; the reply is still available
// later.
func TestAheadSilence(t *testing.T) {
	server := redistest.Start(t)
	line, _ := aheadOn(t, server)
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	a := line.Prefetch(t.Context(), count.Hash(), []string{"n"})
	if _, err := a.Wait(t.Context(), 20*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if a.Cancel() {
		t.Error("it was cancelled after it left")
	}
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if n := counted(t, a); n != 1 {
		t.Error(n)
	}
}

// Prefetch is not possible on a cluster, and the number of waiting scripts is limited
// everywhere.
func TestAheadRefused(t *testing.T) {
	cluster := driver.Open(driver.Cluster, driver.Options("127.0.0.1:1", "127.0.0.1:2"))
	t.Cleanup(func() { _ = cluster.Close() })
	if redisconn.Pipelined(redistest.DB(cluster)).Prefetch(t.Context(), count.Hash(), nil) != nil {
		t.Error("on a cluster")
	}
	single := driver.Open(driver.Single, driver.Options("127.0.0.1:1"))
	t.Cleanup(func() { _ = single.Close() })
	line := redisconn.Pipelined(redistest.DB(single))
	n := 0
	for ; n < 100_000 && line.Prefetch(t.Context(), count.Hash(), nil) != nil; n++ {
	}
	if n == 0 || n == 100_000 {
		t.Errorf("%d are asked for ahead", n)
	}
}
