package calibration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

func TestProcessesShare(t *testing.T) {
	srv := redistest.Start(t)
	a, b := newFixture(t, srv.Client(), Options{}), newFixture(t, srv.Client(), Options{})
	for range 100 {
		a.observe(claude, "v1", Prose, 1000, 1200)
		b.observe(claude, "v1", Prose, 1000, 1300)
		a.ObserveOutput("acme", "ann", claude, 50)
	}
	a.sync()
	b.at = a.at
	b.sync()
	a.sync()
	for _, f := range []*fixture{a, b} {
		if n := f.rows()[0].N; n != 2*perRound {
			t.Errorf("%d observations, want those of both", n)
		}
		if e, _ := f.Output("acme", "ann", claude); e != 50 {
			t.Errorf("output %d", e)
		}
	}
	am, ah := a.Input(house, claude, Prose)
	bm, bh := b.Input(house, claude, Prose)
	if am != bm || ah != bh || am == 1550 {
		t.Errorf("%d, %d in one process and %d, %d in the other", am, ah, bm, bh)
	}
	c := newFixture(t, srv.Client(), Options{})
	c.sync()
	if m, h := c.Input(house, claude, Prose); m != am || h != ah {
		t.Errorf("a new process starts from %d and %d", m, h)
	}
}

func (f *fixture) rows() []Row {
	f.t.Helper()
	rows, err := f.List(context.Background())
	if err != nil || len(rows) == 0 {
		f.t.Fatalf("%d rows, error %v", len(rows), err)
	}
	return rows
}

// TestSyncsMeet: many callers observe while several sync.
func TestSyncsMeet(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				f.observe(claude, "v1", Prose, 1000, 1200)
				f.ObserveOutput("acme", "ann", claude, 50)
				if err := f.Sync(t.Context()); err != nil {
					t.Error(err)
				}
				f.Input(house, claude, Prose)
				f.Output("acme", "ann", claude)
			}
		})
	}
	redistest.Wait(t, wg.Wait)
	if n := f.rows()[0].N; n != 40 {
		t.Errorf("%d observations of 40", n)
	}
}

// faulty fails commands before or after Redis has executed them.
type faulty struct {
	before, after atomic.Int64 // how many more fail
}

var errLost = errors.New("lost on the way")

func (h *faulty) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *faulty) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *faulty) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" && cmd.Name() != "eval" {
			return next(ctx, cmd)
		}
		if h.before.Add(-1) >= 0 {
			cmd.SetErr(errLost)
			return errLost
		}
		err := next(ctx, cmd)
		if err == nil && h.after.Add(-1) >= 0 {
			cmd.SetErr(errLost)
			return errLost
		}
		return err
	}
}

func TestLostRepliesCountOnce(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after int64
		want          int64
	}{
		{"failed, not applied", 1, 0, 15},
		{"failed, but applied", 0, 1, 15},
		{"failed twice, but applied", 0, 2, 15},
		{"given up, never applied", batchTries, 0, 5},
		{"given up, but applied", 0, batchTries, 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			rdb, h := redistest.Start(t).Client(), &faulty{}
			f := newFixture(t, rdb, Options{})
			f.sync() // loads the scripts
			rdb.AddHook(h)
			for range 10 {
				f.observe(claude, "v1", Prose, 1000, 1200)
			}
			h.before.Store(c.before)
			h.after.Store(c.after)
			failures := 0
			for range max(c.before, c.after) {
				if f.Sync(t.Context()) != nil {
					failures++
				}
			}
			if failures == 0 {
				t.Fatal("nothing failed")
			}
			for range 5 {
				f.observe(claude, "v1", Prose, 1000, 1200)
			}
			f.sync()
			f.sync() // writes what was pending behind the first batch
			if n := f.rows()[0].N; n != c.want {
				t.Errorf("%d observations, want %d", n, c.want)
			}
		})
	}
}

func TestRedisAway(t *testing.T) {
	srv := redistest.Start(t, redistest.WithAOF(), redistest.WithArgs("--appendfsync", "always"))
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr, MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	f := newFixture(t, rdb, Options{})
	f.learn("v1", synthetic{ratio: 1.2, noise: 0.02, least: 100, most: 5000}, 200)
	mean, hold := f.Input(house, claude, Prose)
	srv.Kill()
	for range 5 {
		f.observe(claude, "v1", Prose, 1000, 1200)
		if err := f.Sync(t.Context()); err == nil {
			t.Fatal("synced without Redis")
		}
	}
	if m, h := f.Input(house, claude, Prose); m != mean || h != hold {
		t.Errorf("%d, %d were in force and now %d, %d", mean, hold, m, h)
	}
	fresh := newFixture(t, rdb, Options{})
	if m, h := fresh.Input(house, claude, Prose); m != 1550 || h != 1900 {
		t.Errorf("a process that never saw Redis holds %d, %d", m, h)
	}
	srv.Restart()
	f.sync()
	f.sync()
	if m, _ := f.Input(house, claude, Prose); m > 1300 {
		t.Errorf("what was learned did not survive: %d", m)
	}
}

func TestNilKnowsPriors(t *testing.T) {
	var c *Calibration
	c.ObserveInput(Sample{Org: house, Model: claude, Estimated: 10, Actual: 20})
	c.ObserveOutput("o", "u", "m", 10)
	if m, h := c.Input(house, claude, Prose); m != 1550 || h != 1900 {
		t.Errorf("%d and %d", m, h)
	}
	if e, h := c.Output("o", "u", "m"); e != 0 || h != 0 {
		t.Errorf("%d and %d", e, h)
	}
}

func TestEntriesEnd(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{Inputs: 20, Outputs: 30})
		for i := range 50 {
			f.observe(claude, "claude-opus-4-8", Prose, 1000, 1200) // keeps the version in use
			f.observe(fmt.Sprintf("model-%02d", i), "", Prose, 1000, 1200)
			f.ObserveOutput("acme", fmt.Sprintf("user%d", i), "m", 5)
			f.sync()
		}
		count := func() [4]int64 {
			return [4]int64{
				rdb.HLen(ctx, key("input")).Val(), rdb.ZCard(ctx, key("input:recent")).Val(),
				rdb.HLen(ctx, key("output")).Val(), rdb.ZCard(ctx, key("output:recent")).Val(),
			}
		}
		if got := count(); got != [4]int64{20, 20, 30, 30} {
			t.Errorf("entries %v", got)
		}
		if f.find(claude) == nil || f.find("model-49") == nil || f.find("model-01") != nil {
			t.Error("not the longest unused went")
		}
		f.at = f.at.Add(31 * 24 * time.Hour)
		f.observe("late", "", Prose, 1000, 1200)
		f.sync()
		if got := count(); got[0] != 2 || f.find("late") == nil {
			t.Errorf("entries %v a month later", got)
		}
		for _, name := range []string{"input", "input:recent", "output", "output:recent", "batch:" + f.batches.process} {
			if ttl := rdb.PTTL(ctx, key(name)).Val(); ttl <= 0 || ttl > f.opts.Life {
				t.Errorf("%s lives for %v", name, ttl)
			}
		}
	})
}

func (f *fixture) find(model string) *Row {
	f.t.Helper()
	for _, r := range f.rows() {
		if r.Model == model {
			return &r
		}
	}
	return nil
}

// TestForgottenHere: what Redis has lost is dropped from the process after a while.
func TestForgottenHere(t *testing.T) {
	srv := redistest.Start(t)
	f := newFixture(t, srv.Client(), Options{})
	f.learn("v1", synthetic{ratio: 1.2, noise: 0.02, least: 100, most: 5000}, 200)
	srv.FlushAll()
	for range fullEvery {
		f.sync()
	}
	if m, h := f.Input(house, claude, Prose); m != 1550 || h != 1900 {
		t.Errorf("%d and %d after Redis was emptied", m, h)
	}
}

func TestHostileNames(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	long := string(make([]byte, 1000))
	for _, name := range []string{"a\x1fb", "=", "v\x1fm\x1fprose", long, "", "{x}", "\xff"} {
		f.observe(name, name, Prose, 1000, 1200)
		f.observe(claude, name, Prose, 1000, 1200)
		f.ObserveOutput(name, name, name, 10)
	}
	f.sync()
	for _, r := range f.rows() {
		if r.Model != claude && r.Model != "=" && r.Model != "{x}" && r.Model != "\xff" && r.Model != r.Version {
			t.Errorf("row %q %q", r.Model, r.Version)
		}
	}
}

func TestRunAndMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	srv := redistest.Start(t)
	c := New(srv.DB(), Options{Metrics: reg, Refresh: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	for range perRound {
		c.ObserveInput(Sample{Org: house, Model: "prod", Version: "claude-opus-4-8", Name: claude, Class: Code, Estimated: 1000, Actual: 1400})
	}
	cancel()
	if err := redistest.Came(t, done); !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v", err)
	}
	mean, hold := c.Input(house, "prod", Code)
	for kind, want := range map[string]float64{"mean": float64(mean) / 1000, "hold": float64(hold) / 1000, "seen": 1.4} {
		if got := testutil.ToFloat64(c.metrics.ratio.WithLabelValues(claude, "code", kind)); got != want {
			t.Errorf("%s is %v, want %v", kind, got, want)
		}
	}
	if got := testutil.ToFloat64(c.metrics.observations.WithLabelValues("input", "taken")); got != perRound || mean == 1150 {
		t.Errorf("%v observations taken, mean %d", got, mean)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
