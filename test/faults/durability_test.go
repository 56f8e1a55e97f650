package faults

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/journal"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// acknowledgedStore returns a store with durability wait1.
func acknowledgedStore(t *testing.T, addr string, j *journal.Journal, within time.Duration) *budget.Store {
	t.Helper()
	rdb := driver.Open(driver.Single, driver.Options(addr))
	t.Cleanup(func() { _ = rdb.Close() })
	line := redisconn.Joined(redistest.DB(rdb), budget.Join(redistest.DB(rdb)))
	safe := line.Acknowledged(within, false)
	return budget.New(redistest.DB(rdb), budget.Options{
		Scripts: line, Money: safe, Flights: func() budget.Flight { return safe.Batch() }, Journal: j,
	})
}

// TestPartitionWithWait1 disconnects a primary from its replica and then promotes the replica.
// With wait1 no confirmed end is lost, no admitted call is unknown to the new primary, and what
// could not be acknowledged is written by the next process.
func TestPartitionWithWait1(t *testing.T) {
	t.Parallel()
	const room = 100
	primary, replica := redistest.Start(t, redistest.WithArgs("--repl-diskless-sync-delay", "0")), redistest.Start(t)
	network := newLink(t, primary.Addr)
	host, port, err := net.SplitHostPort(network.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.Client().ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); primary.Client().Wait(t.Context(), 1, time.Second).Val() < 1; {
		if time.Now().After(end) {
			t.Fatal("the replica does not follow")
		}
	}
	dir := t.TempDir()
	first := journalOf(t, dir)
	s := acknowledgedStore(t, primary.Addr, nil, time.Minute) // the replica replies, however slow the machine is
	limits := []budget.Limit{{
		ID: "day", Subject: budget.Org, Metric: budget.Cost,
		Shape: budget.Shape{Kind: budget.Window, Amount: room, Window: 24 * time.Hour},
	}}
	hold := func(s *budget.Store, c ledger.Call, n pricing.Nano) (*budget.Hold, error) {
		most := budget.Amounts{Cost: n}
		return s.Hold(t.Context(), budget.Terms{Limits: limits, Call: c, Max: most, Expected: most})
	}
	call := func() ledger.Call { return ledger.Call{ID: wire.NewCallID(), Org: "acme"} }
	var open []*budget.Hold
	for range 6 {
		h, err := hold(s, call(), 10)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, h)
	}
	if _, err := s.Settle(t.Context(), open[0], budget.Settlement{Actual: budget.Amounts{Cost: 10}}); err != nil {
		t.Fatal(err)
	}
	network.Set(fault{Kind: down})
	s = acknowledgedStore(t, primary.Addr, first, 300*time.Millisecond)
	var ends []budget.Settle
	for range 3 {
		c := call()
		if _, err := hold(s, c, 10); !errors.Is(err, budget.ErrUnavailable) {
			t.Errorf("hold without the replica: %v", err)
		}
		ends = append(ends, budget.Settle{Hold: budget.Lost(c)})
	}
	for _, h := range open[1:] {
		ends = append(ends, budget.Settle{Hold: h, Settlement: &budget.Settlement{Actual: budget.Amounts{Cost: 10}}})
	}
	for _, done := range s.SettleAll(t.Context(), ends) {
		if done.Err == nil {
			t.Errorf("ended without the replica: %+v", done)
		}
	}
	if err := s.Later(t.Context(), ends, nil); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil { // its process dies with the primary
		t.Fatal(err)
	}
	primary.Kill()
	if err := replica.Client().ReplicaOf(context.WithoutCancel(t.Context()), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}

	after := budget.New(replica.DB(), budget.Options{Journal: journalOf(t, dir)})
	if left, err := after.Deferred.Replay(t.Context()); left != 0 || err != nil {
		t.Fatalf("%d ends are left: %v", left, err)
	}
	list, err := after.Peek(t.Context(), limits, call())
	if err != nil || list[0].Used != 60 || list[0].Held != 0 {
		t.Errorf("the new primary counts %+v, %v; want 60", list, err)
	}
	if _, err := hold(after, call(), 41); err == nil {
		t.Error("101 of 100 were let through")
	}
}

// journalOf opens a journal, with what dead processes left in its directory.
func journalOf(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}
