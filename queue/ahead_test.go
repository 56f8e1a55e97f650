package queue

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
)

// narrow has quota for one call of 1,000 tokens.
var narrow = Pool{ID: "p", RPM: 1, TPM: 1000, Concurrency: 1}

// lined is a queue whose scripts go down a line; hook sees what leaves.
func lined(t *testing.T, pool Pool, hook redis.Hook) (*env, *redistest.Server) {
	t.Helper()
	srv := redistest.Start(t)
	rdb := srv.Client()
	for _, script := range []*redis.Script{takeScript, giveScript} {
		if err := script.Load(t.Context(), rdb).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if hook != nil {
		rdb.AddHook(hook)
	}
	return envOn(t, srv, Options{Scripts: redisconn.Pipelined(rdb), Burst: 1000}, pool), srv
}

var anna = Flow{"o", "anna"}

func (e *env) ask(ctx context.Context, id string) *Asked {
	e.t.Helper()
	a := e.Ask(ctx, LiveCall{Pool: "p", ID: id, Flow: anna, Tokens: 1000})
	if a == nil {
		e.t.Fatal("it is not asked for ahead")
	}
	return a
}

// fits reports whether the whole quota of narrow is there, and takes it.
func (e *env) fits(id string) bool {
	e.t.Helper()
	_, err := e.Take(e.t.Context(), "p", id, anna, 1000)
	var busy *BusyError
	if err != nil && !errors.As(err, &busy) {
		e.t.Log(err) // as from a Redis that was stopped
	}
	return err == nil
}

// slots are the open calls.
func (e *env) slots() []string {
	return e.rdb.ZRange(e.t.Context(), e.pools()["p"].keys[1], 0, -1).Val()
}

// TestAskIsTake: what was asked for ahead is granted as by Take, once.
func TestAskIsTake(t *testing.T) {
	t.Parallel()
	e, srv := lined(t, narrow, nil)
	g, err := e.ask(t.Context(), "a").Wait(t.Context(), time.Minute)
	if err != nil || g.Tokens != 1000 || !g.Fresh() {
		t.Fatal(g, err)
	}
	var busy *BusyError
	if _, err := e.ask(t.Context(), "b").Wait(t.Context(), time.Minute); !errors.As(err, &busy) || busy.Reason != "rpm" {
		t.Error(err)
	}
	if err := e.Give(t.Context(), g, true); err != nil {
		t.Fatal(err)
	}
	if err := srv.Client().ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.ask(t.Context(), "c").Wait(t.Context(), time.Minute); err != nil {
		t.Errorf("by a Redis that forgot its scripts: %v", err)
	}
	if e.Ask(t.Context(), LiveCall{Pool: "q", ID: "d", Flow: anna, Tokens: 1}) != nil {
		t.Error("from a pool that does not exist")
	}
}

// TestAskDropped: what was booked for a call that does not begin is as if it had never
// been, and what has not left is never booked.
func TestAskDropped(t *testing.T) {
	t.Parallel()
	e, _ := lined(t, Pool{ID: "p", RPM: 100, TPM: 100_000, Concurrency: 10}, nil)
	e.at(simStart)
	if !e.fits("before") {
		t.Fatal("no quota")
	}
	depth, err := e.Depth(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	a := e.ask(t.Context(), "a")
	never := e.ask(t.Context(), "never")
	never.Drop(t.Context())
	if _, err := a.reply.Wait(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if between, err := e.Depth(t.Context(), "p"); err != nil || between.Requests != depth.Requests+1 || between.Tokens != depth.Tokens+1000 {
		t.Fatalf("asked for: %+v, %v", between, err)
	}
	a.Drop(t.Context())
	if after, err := e.Depth(t.Context(), "p"); err != nil || after != depth {
		t.Errorf("%+v after, %+v before; %v", after, depth, err)
	}
	if open := e.slots(); !slices.Equal(open, []string{"before"}) {
		t.Errorf("open are %v", open)
	}
	(*Asked)(nil).Drop(t.Context())
}

// spoiler loses the reply of the first take, or the take itself.
type spoiler struct{ applied, done bool }

func (*spoiler) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*spoiler) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *spoiler) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if s.done || cmds[0].Name() != "evalsha" {
			return next(ctx, cmds)
		}
		s.done = true
		if s.applied {
			_ = next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(io.EOF)
		}
		return io.EOF
	}
}

// TestAskLost: when the reply is lost, what may have been booked goes back.
func TestAskLost(t *testing.T) {
	t.Parallel()
	for what, applied := range map[string]bool{"the reply": true, "the script": false} {
		e, _ := lined(t, narrow, &spoiler{applied: applied})
		if _, err := e.ask(t.Context(), "a").Wait(t.Context(), time.Minute); !errors.Is(err, io.EOF) {
			t.Errorf("%s is lost: %v", what, err)
		}
		eventually(t, "the quota is back when "+what+" is lost", func() bool { return e.fits("b") })
	}
}

// TestAskLate: when the reply comes too late, or the caller has left, what was booked
// goes back when it comes.
func TestAskLate(t *testing.T) {
	t.Parallel()
	e, srv := lined(t, narrow, nil)
	if err := srv.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := e.ask(t.Context(), "a").Wait(t.Context(), 20*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := srv.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the quota is back", func() bool { return e.fits("b") })

	e, _ = lined(t, narrow, nil)
	ctx, cancel := context.WithCancel(t.Context())
	a := e.ask(ctx, "a")
	if _, err := a.reply.Wait(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := a.Wait(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, "the quota is back", func() bool { return e.fits("b") })
}

// stalled lets the first script wait, and tells when a grant has been given back.
type stalled struct {
	once        sync.Once
	goOn, given chan struct{}
}

func (*stalled) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*stalled) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *stalled) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		args := cmds[0].Args()
		if args[0] == "evalsha" {
			s.once.Do(func() { <-s.goOn })
			if args[1] == giveScript.Hash() {
				defer close(s.given)
			}
		}
		return next(ctx, cmds)
	}
}

// TestAskDroppedLate: what is given back late is not the grant that the same call has
// by then.
func TestAskDroppedLate(t *testing.T) {
	t.Parallel()
	hook := &stalled{goOn: make(chan struct{}), given: make(chan struct{})}
	e, srv := lined(t, Pool{ID: "p", Concurrency: 2}, hook)
	a := e.ask(t.Context(), "a")
	if _, err := a.reply.Wait(t.Context(), time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	a.Drop(t.Context())
	direct := envOn(t, srv, Options{}, Pool{ID: "p", Concurrency: 2}) // past the line that waits
	if _, err := direct.Take(t.Context(), "p", "a", anna, 1000); err != nil {
		t.Fatal(err)
	}
	close(hook.goOn)
	<-hook.given
	if open := e.slots(); !slices.Equal(open, []string{"a"}) {
		t.Errorf("open are %v", open)
	}
}

// TestAskForgotten: who dies after asking holds a place no longer than a lease.
func TestAskForgotten(t *testing.T) {
	t.Parallel()
	e, _ := lined(t, Pool{ID: "p", Concurrency: 1}, nil)
	e.at(simStart)
	if _, err := e.ask(t.Context(), "a").reply.Wait(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if e.at(simStart + 29*time.Second); e.fits("b") {
		t.Error("the place is free before the lease has ended")
	}
	if e.at(simStart + 31*time.Second); !e.fits("b") {
		t.Error("the place is not free after the lease")
	}
}

// TestRunWaitsForDropped: a process that stops in order has given back what it asked for
// in vain.
func TestRunWaitsForDropped(t *testing.T) {
	t.Parallel()
	e, srv := lined(t, narrow, nil)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); _ = e.Run(ctx) }()
	a := e.ask(t.Context(), "a")
	if _, err := a.reply.Wait(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	// What gives back waits for as long as Redis keeps it waiting.
	if err := srv.Client().Do(t.Context(), "client", "pause", "500", "write").Err(); err != nil {
		t.Fatal(err)
	}
	a.DropSoon(t.Context())
	stop()
	<-ran
	if !e.fits("b") {
		t.Error("what was dropped is still booked")
	}
}
