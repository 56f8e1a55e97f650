package budget

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/budget/outage"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestTailMemory logs the memory of an ended call while it is remembered.
func TestTailMemory(t *testing.T) {
	const n = 20_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	s := New(nil, Options{})
	before := heap()
	for i := range n {
		c := ledger.Call{ID: idAt(time.Now(), i), Attempt: 1, Org: "acme", User: "ann", Model: "gpt-4o"}
		h, err := s.binder.prepare(&Terms{Limits: journalLimits, Call: c, Max: cost(5), Expected: cost(5)})
		if err != nil {
			t.Fatal(err)
		}
		remember(s.recent, Settle{h, &Settlement{Actual: cost(3), UpstreamID: fmt.Sprintf("req_%032d", i)}}, nil)
	}
	each := (heap() - before) / n
	t.Logf("%d bytes a call with %d limits", each, len(journalLimits))
	if each > 3000 {
		t.Errorf("%d bytes a call", each)
	}
	runtime.KeepAlive(s)
}

// failedLooks counts how often Run checked the store's identity and got no answer.
type failedLooks struct{ n atomic.Int64 }

func (l *failedLooks) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (l *failedLooks) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (l *failedLooks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err != nil && slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == "info" }) {
			l.n.Add(1)
		}
		return err
	}
}

// another waits until another check has failed.
func (l *failedLooks) another(t *testing.T) {
	t.Helper()
	before := l.n.Load()
	redistest.Eventually(t, "a look that fails", func() bool { return l.n.Load() > before })
}

// answeredAt sets when the remembered endings were answered: the first at one instant, the rest at
// another.
func answeredAt(recent *outage.Recent[Settle], first, others time.Time) {
	list := recent.List()
	recent.Forget(time.Now().Add(time.Hour))
	at := first
	for _, r := range list {
		recent.Answered(r.Ending, at)
		at = others
	}
}

// TestTailOfAnEmptiedStore: a Redis that comes back empty gets the endings that it answered
// recently again, once, however long it was unavailable. Older endings are not sent, because they
// cannot be distinguished from repetitions.
func TestTailOfAnEmptiedStore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var log bytes.Buffer
	s := openJournaled(t, server, t.TempDir(), Options{Tail: time.Minute, Horizon: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil))})
	failed := &failedLooks{}
	driver.Client(s.rdb).AddHook(failed)
	if _, err := s.Settle(t.Context(), s.take(t, idAt(time.Now(), 9), 7), Settlement{Actual: cost(7)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Settle(t.Context(), s.take(t, idAt(time.Now(), 1), 100), Settlement{Actual: cost(60)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Void(t.Context(), s.take(t, idAt(time.Now(), 2), 50)); err != nil {
		t.Fatal(err)
	}
	if err := s.VoidLost(t.Context(), s.take(t, idAt(time.Now(), 3), 30).Call); err != nil {
		t.Fatal(err)
	}
	stands(t, s.Store, 67, 2)
	s.watcher.Step(t.Context()) // knows the store
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	server.Kill()
	failed.another(t) // no check that still found the store is in progress
	answeredAt(s.recent, time.Now().Add(-2*time.Hour), time.Now().Add(-2*s.opts.Tail))
	failed.another(t)
	server.Restart()
	redistest.Eventually(t, "the tail is written again", func() bool { return !s.watcher.Done().IsZero() })
	cancel()
	redistest.Came(t, ended)
	stands(t, s.Store, 60, 1)
	if text := log.String(); !strings.Contains(text, "calls=4 forgotten=3 ") || !strings.Contains(text, " too_old=1\n") {
		t.Errorf("logged %s; want 4 calls, 3 forgotten, 1 too old", text)
	}
}

// TestStoreEmptied: an emptied store is detected, logged as an error, and gets back what is
// remembered. A store that fails over or restarts with its data is not treated as emptied.
func TestStoreEmptied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF(), redistest.WithArgs("--appendfsync", "always"))
	reg := prometheus.NewRegistry()
	s := openJournaled(t, server, t.TempDir(), Options{Metrics: reg})
	losses := func(want float64) {
		t.Helper()
		text := fmt.Sprintf("# HELP %[1]s Times that this process found that the store had lost its data.\n# TYPE %[1]s counter\n%[1]s %v\n",
			"llmguard_budget_store_emptied_total", want)
		if err := testutil.GatherAndCompare(reg, strings.NewReader(text), "llmguard_budget_store_emptied_total"); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { cancel(); redistest.Came(t, ended) }()
	mended := s.watcher.Done
	redistest.Eventually(t, "the store has an epoch", func() bool { return server.Client().Exists(t.Context(), outage.EpochKey).Val() == 1 })
	if _, err := s.Settle(t.Context(), s.take(t, idAt(time.Now(), 1), 100), Settlement{Actual: cost(60)}); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	redistest.Eventually(t, "the restart is noticed", func() bool { return !mended().IsZero() })
	losses(0)
	last := mended()
	server.FlushAll()
	redistest.Eventually(t, "the loss is noticed", func() bool { return mended().After(last) })
	losses(1)
	stands(t, s.Store, 60, 1)
}
