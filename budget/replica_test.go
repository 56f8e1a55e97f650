package budget

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/journal"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

// withReplica starts a primary with a replica.
func withReplica(t *testing.T) (primary, replica *redistest.Server) {
	t.Helper()
	quick := redistest.WithArgs("--repl-diskless-sync-delay", "0")
	primary = redistest.Start(t, quick)
	host, port, err := net.SplitHostPort(primary.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica = redistest.Start(t, quick, redistest.WithArgs("--replicaof", host+" "+port))
	redistest.Eventually(t, "the replica follows", func() bool { return primary.Client().Wait(t.Context(), 1, time.Second).Val() == 1 })
	return primary, replica
}

func signal(t *testing.T, s *redistest.Server, sig syscall.Signal) {
	t.Helper()
	if err := s.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// TestUnacknowledgedByAReplica: with wait1, a hold that no replica has is refused and can be given
// back, and the end of a call stays in the journal until a replica has it; then it is there once.
func TestUnacknowledgedByAReplica(t *testing.T) {
	t.Parallel()
	primary, replica := withReplica(t)
	j, err := journal.Open(t.TempDir(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	rdb := driver.Open(driver.Single, driver.Options(primary.Addr))
	t.Cleanup(func() { _ = rdb.Close() })
	line := redisconn.Joined(redistest.DB(rdb), Join(redistest.DB(rdb)))
	safe := line.Acknowledged(200*time.Millisecond, false)
	s := journaled{New(redistest.DB(rdb), Options{
		Scripts: line, Money: safe, Flights: func() Flight { return safe.Batch() }, Journal: j,
	}), j}
	patient := journaled{New(redistest.DB(rdb), Options{Scripts: line, Journal: j}), j} // a replica may be slow here
	h := patient.take(t, idAt(time.Now(), 1), 100)
	signal(t, replica, syscall.SIGSTOP)
	lost := ledger.Call{ID: idAt(time.Now(), 2), Org: h.Call.Org, User: h.Call.User}
	if _, err := s.Hold(t.Context(), Terms{Call: lost, Max: cost(5), Expected: cost(5)}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("hold without a replica: %v", err)
	}
	ends := []Settle{{h, &Settlement{Actual: cost(60)}}, {Hold: Lost(lost)}}
	for _, done := range s.SettleAll(t.Context(), ends) {
		if !errors.Is(done.Err, ErrUnavailable) {
			t.Errorf("end without a replica: %+v", done)
		}
	}
	if err := s.Later(t.Context(), ends, nil); err != nil {
		t.Fatal(err)
	}
	s.replay(t, 2)
	signal(t, replica, syscall.SIGCONT)
	redistest.Eventually(t, "the ends are acknowledged", func() bool { n, _ := s.Deferred.Replay(t.Context()); return n == 0 })
	stands(t, s.Store, 60, 1)
	promoted := New(replica.DB(), Options{})
	replica.Client().ReplicaOf(t.Context(), "NO", "ONE")
	stands(t, promoted, 60, 1)
}

// TestTailWaitsForTheReplica: what no replica has is remembered beyond the span of the tail, also
// when the primary has lost its replica; without a replica the span decides.
func TestTailWaitsForTheReplica(t *testing.T) {
	t.Parallel()
	primary, replica := withReplica(t)
	s := openJournaled(t, primary, t.TempDir(), Options{Tail: time.Nanosecond})
	look := func() int {
		if _, err := s.watcher.Servers(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.recent.Forget(s.recent.Until(time.Now(), s.opts.Horizon))
		return len(s.recent.List())
	}
	if _, err := s.Settle(t.Context(), s.take(t, idAt(time.Now(), 1), 100), Settlement{Actual: cost(60)}); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the replica has it", func() bool { return look() == 0 })
	signal(t, replica, syscall.SIGSTOP)
	if _, err := s.Settle(t.Context(), s.take(t, idAt(time.Now(), 2), 100), Settlement{Actual: cost(60)}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if look() != 1 {
			t.Fatal("forgotten before the replica had it")
		}
	}
	primary.Client().ClientKillByFilter(t.Context(), "TYPE", "replica") // it disappears from the list
	if look() != 1 {
		t.Fatal("forgotten once the primary lost its replica")
	}
	later := openJournaled(t, primary, t.TempDir(), Options{Tail: time.Nanosecond}) // never saw the replica
	if _, err := later.Settle(t.Context(), later.take(t, idAt(time.Now(), 3), 100), Settlement{Actual: cost(60)}); err != nil {
		t.Fatal(err)
	}
	if _, err := later.watcher.Servers(t.Context()); err != nil {
		t.Fatal(err)
	}
	later.recent.Forget(later.recent.Until(time.Now(), later.opts.Horizon))
	if n := len(later.recent.List()); n != 1 {
		t.Errorf("%d are remembered by a process that came during the partition", n)
	}
	signal(t, replica, syscall.SIGCONT)
	redistest.Eventually(t, "the replica has it again", func() bool { return look() == 0 })

	alone := openJournaled(t, redistest.Start(t), t.TempDir(), Options{Tail: time.Nanosecond})
	if _, err := alone.Settle(t.Context(), alone.take(t, idAt(time.Now(), 1), 100), Settlement{Actual: cost(60)}); err != nil {
		t.Fatal(err)
	}
	if _, err := alone.watcher.Servers(t.Context()); err != nil {
		t.Fatal(err)
	}
	alone.recent.Forget(alone.recent.Until(time.Now(), alone.opts.Horizon))
	if n := len(alone.recent.List()); n != 0 {
		t.Errorf("%d are remembered that no replica will have", n)
	}
}
