package quota

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/lua"
)

// narrow has quota for one call of 1,000 tokens.
var narrow = Pool{ID: "p", RPM: 1, TPM: 1000, Concurrency: 1}

var simStart = time.Unix(1_800_000_000, 0)

// rig is a Quota whose scripts share pipelines.
type rig struct {
	*Quota
	t   *testing.T
	rdb *redis.Client
	now time.Time // for the scripts; zero: Redis's own
}

// start returns a rig with one pool. hook sees what is sent to Redis.
func start(t *testing.T, pool Pool, hook redis.Hook) (*rig, *redistest.Server) {
	t.Helper()
	srv := redistest.Start(t)
	rdb := srv.Client()
	for _, name := range []string{"take", "give"} {
		if err := rdb.ScriptLoad(t.Context(), lua.Text(lua.Files(), name)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if hook != nil {
		rdb.AddHook(hook)
	}
	return rigOn(t, srv, redisconn.Pipelined(redistest.DB(rdb)), pool), srv
}

func rigOn(t *testing.T, srv *redistest.Server, scripts redisconn.Scripter, pool Pool) *rig {
	r := &rig{t: t, rdb: srv.Client()}
	clock := func() string {
		if r.now.IsZero() {
			return ""
		}
		return strconv.FormatInt(r.now.UnixMicro(), 10)
	}
	pool.Burst = 1000
	r.Quota = New(redistest.DB(r.rdb), Options{Scripts: scripts, Lease: 30 * time.Second, Clock: clock})
	r.Configure([]Pool{pool})
	return r
}

func request(id string) Request {
	return Request{Pool: "p", ID: id, Org: "o", User: "anna", Tokens: 1000}
}

func (r *rig) ask(ctx context.Context, id string) *Prefetched {
	r.t.Helper()
	a := r.Prefetch(ctx, request(id))
	if a == nil {
		r.t.Fatal("got no Asked, want one on a single server")
	}
	return a
}

// fits reports whether the quota has room for a call, and takes it.
func (r *rig) fits(id string) bool {
	r.t.Helper()
	_, err := r.Take(r.t.Context(), request(id))
	var busy *BusyError
	if err != nil && !errors.As(err, &busy) {
		r.t.Log(err) // for example from a Redis that was stopped
	}
	return err == nil
}

// open lists the calls that have a slot.
func (r *rig) open() []string { return r.rdb.ZRange(r.t.Context(), Key("p", "slots"), 0, -1).Val() }

// TestAskIsTake checks that prefetched quota is granted as by Take, once.
func TestAskIsTake(t *testing.T) {
	t.Parallel()
	r, srv := start(t, narrow, nil)
	g, err := r.ask(t.Context(), "a").Wait(t.Context(), time.Minute)
	if err != nil || g.Tokens != 1000 || g.Permit() != nil {
		t.Fatal(g, err)
	}
	var busy *BusyError
	if _, err := r.ask(t.Context(), "b").Wait(t.Context(), time.Minute); !errors.As(err, &busy) || busy.Reason != "rpm" {
		t.Error(err)
	}
	if err := r.Give(t.Context(), g, true); err != nil {
		t.Fatal(err)
	}
	if err := srv.Client().ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ask(t.Context(), "c").Wait(t.Context(), time.Minute); err != nil {
		t.Errorf("by a Redis that forgot its scripts: %v", err)
	}
	if r.Prefetch(t.Context(), Request{Pool: "q", ID: "d"}) != nil {
		t.Error("from a pool that does not exist")
	}
}

// TestAskDropped checks that a booking for a call that does not begin leaves no trace, and
// that a prefetch that was not sent is never booked.
func TestAskDropped(t *testing.T) {
	t.Parallel()
	r, _ := start(t, Pool{ID: "p", RPM: 2, TPM: 2000, Concurrency: 2}, nil)
	if !r.fits("before") {
		t.Fatal("got no quota for the first call")
	}
	a := r.ask(t.Context(), "a")
	never := r.ask(t.Context(), "never")
	never.Drop(t.Context())
	if _, err := a.reply.Wait(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if r.fits("between") {
		t.Fatal("got quota for a third call of two")
	}
	a.Drop(t.Context())
	if open := r.open(); !slices.Equal(open, []string{"before"}) {
		t.Errorf("got %v open after the drop, want the first call alone", open)
	}
	if !r.fits("after") {
		t.Error("what was dropped is still booked")
	}
	(*Prefetched)(nil).Drop(t.Context())
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

// TestAskLost checks that what may have been booked is returned if the reply is lost.
func TestAskLost(t *testing.T) {
	t.Parallel()
	for what, applied := range map[string]bool{"the reply": true, "the script": false} {
		r, _ := start(t, narrow, &spoiler{applied: applied})
		if _, err := r.ask(t.Context(), "a").Wait(t.Context(), time.Minute); !errors.Is(err, io.EOF) {
			t.Errorf("%s is lost: %v", what, err)
		}
		redistest.Eventually(t, "the quota is back when "+what+" is lost", func() bool { return r.fits("b") })
	}
}

// TestAskLate checks that a booking whose reply comes too late, or whose caller has left,
// is returned when the reply arrives.
func TestAskLate(t *testing.T) {
	t.Parallel()
	r, srv := start(t, narrow, nil)
	if err := srv.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ask(t.Context(), "a").Wait(t.Context(), 20*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := srv.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the quota is back", func() bool { return r.fits("b") })

	r, _ = start(t, narrow, nil)
	ctx, cancel := context.WithCancel(t.Context())
	a := r.ask(ctx, "a")
	if _, err := a.reply.Wait(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := a.Wait(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	redistest.Eventually(t, "the quota is back", func() bool { return r.fits("b") })
}

// stalled blocks the first script, and signals when it is blocked and when a grant is given back.
type stalled struct {
	once              sync.Once
	sent, goOn, given chan struct{}
	t                 *testing.T
}

func (*stalled) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*stalled) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *stalled) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		args := cmds[0].Args()
		if args[0] == "evalsha" {
			s.once.Do(func() { close(s.sent); redistest.Came(s.t, s.goOn) })
			if args[1] == giveScript.Hash() {
				defer close(s.given)
			}
		}
		return next(ctx, cmds)
	}
}

// TestAskDroppedLate checks that a late return does not affect the grant that the same call
// has by then.
func TestAskDroppedLate(t *testing.T) {
	t.Parallel()
	hook := &stalled{sent: make(chan struct{}), goOn: make(chan struct{}), given: make(chan struct{}), t: t}
	r, srv := start(t, Pool{ID: "p", Concurrency: 2}, hook)
	a := r.ask(t.Context(), "a")
	if _, err := a.reply.Wait(t.Context(), time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	redistest.Came(t, hook.sent) // a request that was not sent yet is cancelled, and nothing is given back
	a.Drop(t.Context())
	direct := rigOn(t, srv, srv.DB(), Pool{ID: "p", Concurrency: 2}) // bypasses the blocked pipeline
	if _, err := direct.Take(t.Context(), request("a")); err != nil {
		t.Fatal(err)
	}
	close(hook.goOn)
	redistest.Came(t, hook.given)
	if open := r.open(); !slices.Equal(open, []string{"a"}) {
		t.Errorf("open are %v", open)
	}
}

// TestAskForgotten checks that a process that dies after a prefetch holds a slot no longer
// than a lease.
func TestAskForgotten(t *testing.T) {
	t.Parallel()
	r, _ := start(t, Pool{ID: "p", Concurrency: 1}, nil)
	r.now = simStart
	if _, err := r.ask(t.Context(), "a").reply.Wait(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	r.now = simStart.Add(29 * time.Second)
	if r.fits("b") {
		t.Error("the place is free before the lease has ended")
	}
	r.now = simStart.Add(31 * time.Second)
	if !r.fits("b") {
		t.Error("the place is not free after the lease")
	}
}

// TestRunWaitsForDropped checks that a process that shuts down cleanly has returned its
// unused quota.
func TestRunWaitsForDropped(t *testing.T) {
	t.Parallel()
	r, srv := start(t, narrow, nil)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); _ = r.Run(ctx) }()
	a := r.ask(t.Context(), "a")
	if _, err := a.reply.Wait(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	// The return waits for as long as Redis is paused.
	if err := srv.Client().Do(t.Context(), "client", "pause", "500", "write").Err(); err != nil {
		t.Fatal(err)
	}
	a.DropSoon(t.Context())
	stop()
	redistest.Came(t, ran)
	if !r.fits("b") {
		t.Error("what was dropped is still booked")
	}
}
