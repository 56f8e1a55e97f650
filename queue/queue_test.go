package queue

import (
	"context"
	"errors"
	testflag "flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

// soak enables the long forms of the tests.
var soak = os.Getenv("LLMGUARD_SOAK") != ""

func TestMain(m *testing.M) {
	_ = testflag.Set("test.parallel", "8") // most tests wait more than they compute
	if !soak {
		_ = testflag.Set("rapid.checks", "30")
	}
	// A go-redis pool that lost its server dials it once a second, until at most a
	// second after its Close.
	dialer := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	randtest.Rapid()
	goleak.VerifyTestMain(m, dialer)
}

// env is a queue on its own real Redis.
type env struct {
	*Queue
	t   testing.TB
	srv *redistest.Server
	rdb *redis.Client
}

func newEnv(t testing.TB, opts Options, pools ...Pool) *env {
	t.Helper()
	srv := redistest.Start(t)
	return envOn(t, srv, opts, pools...)
}

func envOn(t testing.TB, srv *redistest.Server, opts Options, pools ...Pool) *env {
	t.Helper()
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	rdb := srv.Client()
	q, err := New(redistest.DB(rdb), pools, opts)
	if err != nil {
		t.Fatal(err)
	}
	return &env{Queue: q, t: t, srv: srv, rdb: rdb}
}

// run runs the queue and a worker until the returned stop is called.
func (e *env) run(runner func(context.Context, *Claim) Verdict, opts WorkerOptions) (stop func()) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	wait := e.start(ctx, runner, opts)
	stop = sync.OnceFunc(func() { cancel(); wait() })
	e.t.Cleanup(stop)
	return stop
}

// start runs the queue and a worker until ctx is done, and returns a function that waits
// for them.
func (e *env) start(ctx context.Context, runner func(context.Context, *Claim) Verdict, opts WorkerOptions) (wait func()) {
	e.t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Run(ctx) })
	if opts.ShutdownTimeout == 0 {
		opts.ShutdownTimeout = 3 * time.Second
	}
	wg.Go(func() {
		if err := NewWorker(e.Queue, runner, opts).Run(ctx); err != nil {
			e.t.Error(err)
		}
	})
	return wg.Wait
}

// putAll puts jobs from several goroutines, in no order.
func (e *env) putAll(jobs []*Job) {
	e.t.Helper()
	var g errgroup.Group
	g.SetLimit(32)
	for _, j := range jobs {
		g.Go(func() error { return e.Put(e.t.Context(), j, nil) })
	}
	redistest.Wait(e.t, func() {
		if err := g.Wait(); err != nil {
			e.t.Error(err)
		}
	})
}

func (e *env) job(pool, org, user string, class Class, tokens int64) *Job {
	return &Job{
		ID: e.NewID(pool), Pool: pool, Org: org, User: user, Class: class, Tokens: tokens,
		Endpoint: wire.ChatCompletions, Model: "m", CallID: wire.NewCallID(),
		Header: http.Header{"X-Test": {"yes"}},
	}
}

func (e *env) put(j *Job) *Job {
	e.t.Helper()
	if err := e.Put(e.t.Context(), j, []byte(`{"n":1}`)); err != nil {
		e.t.Fatal(err)
	}
	return j
}

// claim acquires up to n claims as a pacer would, without a worker.
func (e *env) claim(pool string, n int) []*Claim {
	e.t.Helper()
	pc := newPacer(e.Queue, e.settings.pools()[pool], 1)
	got, err := pc.acquire(e.t.Context(), n)
	if err != nil {
		e.t.Fatal(err)
	}
	e.contents.fetch(e.t.Context(), e.settings.pools()[pool], got.claims)
	for _, c := range got.claims {
		c.ctx = e.t.Context()
		if c.unread != nil {
			e.t.Fatal(c.unread)
		}
	}
	return got.claims
}

// claimOne acquires the next job and fails if it is not the wanted one.
func (e *env) claimOne(pool string, want *Job) *Claim {
	e.t.Helper()
	claims := e.claim(pool, 1)
	if len(claims) != 1 {
		e.t.Fatalf("got %d claims, want 1", len(claims))
	}
	if want != nil && claims[0].Job.ID != want.ID {
		e.t.Fatalf("claimed %s, want %s", claims[0].Job.ID, want.ID)
	}
	return claims[0]
}

func (e *env) state(j *Job) State {
	e.t.Helper()
	got, err := e.Job(e.t.Context(), j.Org, j.ID)
	if err != nil {
		e.t.Fatal(err)
	}
	return got.State
}

func (e *env) at(now time.Duration) { e.scripts.clock = strconv.FormatInt(now.Microseconds(), 10) }

func noop(ctx context.Context, c *Claim) Verdict {
	if err := c.Start(ctx); err != nil {
		return Verdict{Kind: Requeue, Unused: true}
	}
	if _, err := c.Output().Write([]byte("ok")); err != nil {
		return Verdict{Kind: Requeue}
	}
	return Verdict{Kind: Done, Status: 200}
}

func TestJobRunsThroughAsynqOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx := t.Context()
	e.run(noop, WorkerOptions{})
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	w := e.Watch(ctx, j)
	defer w.Close()
	var text string
	var heads, ends int
	for {
		ev, err := w.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch ev.Kind {
		case Bytes:
			text += string(ev.Data)
		case Head:
			heads++
		case End:
			ends++
			if !ev.OK {
				t.Error("end not ok")
			}
		}
	}
	if text != "ok" || heads != 1 || ends != 1 {
		t.Errorf("watched %q, %d heads, %d ends", text, heads, ends)
	}
	got, err := e.Job(ctx, "acme", j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.State != Succeeded || got.Attempt != 1 || got.Header.Get("X-Test") != "yes" || got.Status != 200 {
		t.Errorf("job is %+v", got)
	}
	d, err := e.Depth(ctx, "p")
	if err != nil {
		t.Fatal(err)
	}
	if d.Jobs != 0 || d.Bytes != 0 || d.Claims != 0 || d.Waiting != [4]int64{} || d.WaitingTokens != [4]int64{} {
		t.Errorf("depth after the end: %+v", d)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	const jobs = 400
	var mu sync.Mutex
	runs := make(map[string]int)
	e.run(func(ctx context.Context, c *Claim) Verdict {
		mu.Lock()
		runs[c.Job.ID]++
		mu.Unlock()
		return noop(ctx, c)
	}, WorkerOptions{})
	ids := make([]*Job, jobs)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := g; i < jobs; i += 8 {
				ids[i] = e.put(e.job("p", fmt.Sprintf("org%d", i%7), fmt.Sprintf("u%d", i%3), Async, 10))
			}
		})
	}
	redistest.Wait(t, wg.Wait)
	redistest.Eventually(t, "queue empty", func() bool {
		d, err := e.Depth(t.Context(), "p")
		return err == nil && d.Jobs == 0
	})
	for _, j := range ids {
		if s := e.state(j); s != Succeeded {
			t.Fatalf("%s is %s", j.ID, s)
		}
	}
	for id, n := range runs {
		if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
}
