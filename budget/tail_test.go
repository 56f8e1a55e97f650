package budget

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/internal/redistest"
)

func numbered(i int) Ending {
	return Ending{Hold: &Hold{ID: fmt.Sprint(i), Statuses: make([]Status, 3)}}
}

// The ring keeps the newest, in order, and lets go of what is old.
func TestTailRing(t *testing.T) {
	ring := tail{span: time.Minute}
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
	off := tail{span: -1}
	if off.answered(numbered(1), nil); off.n != 0 {
		t.Error("remembered although it is off")
	}
}

// TestTailMemory logs what an ended call takes while it is remembered.
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
		c := Call{ID: idAt(time.Now(), i), Attempt: 1, Org: "acme", User: "ann", Model: "gpt-4o"}
		h, err := s.prepare(journalLimits, c, cost(5), cost(5))
		if err != nil {
			t.Fatal(err)
		}
		s.tail.answered(Ending{h, &Settlement{Actual: cost(3), UpstreamID: fmt.Sprintf("req_%032d", i)}}, nil)
	}
	each := (heap() - before) / n
	t.Logf("%d bytes a call with %d limits", each, len(journalLimits))
	if each > 3000 {
		t.Errorf("%d bytes a call", each)
	}
	runtime.KeepAlive(s)
}

// TestTailOfAnEmptiedStore: a Redis that comes back with nothing gets what it
// answered lately again, once, however long it was away; what is older is not
// sent, for nobody could tell it from a repetition.
func TestTailOfAnEmptiedStore(t *testing.T) {
	server := redistest.Start(t)
	s := openJournaled(t, server, t.TempDir(), Options{Tail: 6 * time.Second, Horizon: time.Hour})
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
	until(t, "the store is known", func() bool { s.tail.mu.Lock(); defer s.tail.mu.Unlock(); return s.tail.known })
	server.Kill()
	s.tail.mu.Lock()
	s.tail.ring[s.tail.head].at = time.Now().Add(-2 * time.Hour)
	s.tail.mu.Unlock()
	time.Sleep(s.tail.span + time.Second)
	server.Restart()
	until(t, "the tail is written again", func() bool { s.tail.mu.Lock(); defer s.tail.mu.Unlock(); return !s.tail.done.IsZero() })
	cancel()
	<-ended
	stands(t, s.Store, 60, 1)
	s.tail.mu.Lock()
	defer s.tail.mu.Unlock()
	if m := s.tail.last; m.calls != 4 || m.forgotten != 3 || m.tooOld != 1 {
		t.Errorf("mended %+v", m)
	}
}

// TestStoreEmptied: an emptied store is noticed, said loudly, and gets back what
// is remembered; one that fails over or restarts with its data is not.
func TestStoreEmptied(t *testing.T) {
	server := redistest.Start(t, redistest.WithAOF(), redistest.WithArgs("--appendfsync", "always"))
	s := openJournaled(t, server, t.TempDir(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	mended := func() time.Time { s.tail.mu.Lock(); defer s.tail.mu.Unlock(); return s.tail.done }
	until(t, "the store has an epoch", func() bool { return server.Client().Exists(t.Context(), epochKey).Val() == 1 })
	if _, err := s.Settle(t.Context(), s.take(t, idAt(time.Now(), 1), 100), Settlement{Actual: cost(60)}); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	until(t, "the restart is noticed", func() bool { return !mended().IsZero() })
	if n := testutil.ToFloat64(s.later.metrics.emptied); n != 0 {
		t.Errorf("a restart is taken for %v losses", n)
	}
	last := mended()
	server.FlushAll()
	until(t, "the loss is noticed", func() bool { return mended().After(last) })
	if n := testutil.ToFloat64(s.later.metrics.emptied); n != 1 {
		t.Errorf("counted %v losses", n)
	}
	stands(t, s.Store, 60, 1)
}
