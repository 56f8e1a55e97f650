package budget

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

func numbered(i int) Settle {
	return Settle{Hold: &Hold{ID: fmt.Sprint(i), Statuses: make([]Status, 3)}}
}

// TestTailRing: the ring keeps the newest endings in order and drops old ones.
func TestTailRing(t *testing.T) {
	ring := recentSettles{span: time.Minute}
	wants := func(from, to int) {
		t.Helper()
		list := ring.list()
		if len(list) != to-from {
			t.Fatalf("%d are remembered, want %d to %d", len(list), from, to)
		}
		for i, r := range list {
			if r.Hold.ID != fmt.Sprint(from+i) || r.Hold.Statuses != nil {
				t.Fatalf("at %d: %+v", i, r.Hold)
			}
		}
	}
	for i := range 1000 {
		ring.answered(numbered(i), nil)
	}
	ring.answered(numbered(-1), ErrUnavailable)
	wants(0, 1000)
	middle := time.Now()
	for i := 1000; i < 1500; i++ {
		ring.answered(numbered(i), nil)
	}
	ring.forget(middle)
	wants(1000, 1500)
	for i := 1500; i < 1000+tailMost+300; i++ {
		ring.answered(numbered(i), nil)
	}
	wants(1300, 1300+tailMost)
	ring.forget(time.Now().Add(time.Second))
	wants(0, 0)
	if ring.ring != nil {
		t.Error("an empty ring keeps its memory")
	}
	off := recentSettles{span: -1}
	if off.answered(numbered(1), nil); off.n != 0 {
		t.Error("remembered although it is off")
	}
}

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
		s.recent.answered(Settle{h, &Settlement{Actual: cost(3), UpstreamID: fmt.Sprintf("req_%032d", i)}}, nil)
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
func (t *recentSettles) answeredAt(first, others time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.n {
		t.ring[(t.head+i)%len(t.ring)].at = others
	}
	t.ring[t.head].at = first
}

// TestTailOfAnEmptiedStore: a Redis that comes back empty gets the endings that it answered
// recently again, once, however long it was unavailable. Older endings are not sent, because they
// cannot be distinguished from repetitions.
func TestTailOfAnEmptiedStore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openJournaled(t, server, t.TempDir(), Options{Tail: time.Minute, Horizon: time.Hour})
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
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	redistest.Eventually(t, "the store is known", func() bool { s.recent.mu.Lock(); defer s.recent.mu.Unlock(); return s.recent.known })
	server.Kill()
	failed.another(t) // no check that still found the store is in progress
	s.recent.answeredAt(time.Now().Add(-2*time.Hour), time.Now().Add(-2*s.recent.span))
	failed.another(t)
	server.Restart()
	redistest.Eventually(t, "the tail is written again", func() bool { s.recent.mu.Lock(); defer s.recent.mu.Unlock(); return !s.recent.done.IsZero() })
	cancel()
	redistest.Came(t, ended)
	stands(t, s.Store, 60, 1)
	s.recent.mu.Lock()
	defer s.recent.mu.Unlock()
	if m := s.recent.last; m.calls != 4 || m.forgotten != 3 || m.tooOld != 1 {
		t.Errorf("got %d calls, %d forgotten, %d too old; want 4, 3, 1", m.calls, m.forgotten, m.tooOld)
	}
}

// TestStoreEmptied: an emptied store is detected, logged as an error, and gets back what is
// remembered. A store that fails over or restarts with its data is not treated as emptied.
func TestStoreEmptied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF(), redistest.WithArgs("--appendfsync", "always"))
	s := openJournaled(t, server, t.TempDir(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { cancel(); redistest.Came(t, ended) }()
	mended := func() time.Time { s.recent.mu.Lock(); defer s.recent.mu.Unlock(); return s.recent.done }
	redistest.Eventually(t, "the store has an epoch", func() bool { return server.Client().Exists(t.Context(), epochKey).Val() == 1 })
	if _, err := s.Settle(t.Context(), s.take(t, idAt(time.Now(), 1), 100), Settlement{Actual: cost(60)}); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	redistest.Eventually(t, "the restart is noticed", func() bool { return !mended().IsZero() })
	if n := testutil.ToFloat64(s.Deferred.metrics.emptied); n != 0 {
		t.Errorf("a restart is taken for %v losses", n)
	}
	last := mended()
	server.FlushAll()
	redistest.Eventually(t, "the loss is noticed", func() bool { return mended().After(last) })
	if n := testutil.ToFloat64(s.Deferred.metrics.emptied); n != 1 {
		t.Errorf("counted %v losses", n)
	}
	stands(t, s.Store, 60, 1)
}
