package budget

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestClusterScripts: every script uses a single slot and only the keys it declares; each node
// holds some of the orgs.
func TestClusterScripts(t *testing.T) {
	t.Parallel()
	group := redistest.StartCluster(t, 3, 0)
	rdb := group.Client()
	ctx := t.Context()
	nodes := map[*redistest.Server]bool{}
	for i := range 8 {
		s := New(redistest.DB(rdb), Options{})
		org := fmt.Sprintf("org%d", i)
		nodes[group.Owner(ledger.Key(org, ""))] = true
		limits := []Limit{
			costLimit("user", User, hour(1000)),
			costLimit("purse", User, Shape{Kind: Bucket, Amount: 1000}),
			costLimit("month", Org, Shape{Kind: Calendar, Amount: 1e15, Calendar: "month"}),
			{ID: "par", Subject: Org, Metric: Concurrency, Shape: Shape{Kind: Concurrent, Amount: 1e6}},
			{ID: "exact", Subject: User, Metric: Tokens, Shape: Shape{Kind: ExactWindow, Amount: 100, Window: time.Minute}},
		}
		calls := make([]ledger.Call, 3)
		holds := make([]*Hold, 3)
		for k := range calls {
			calls[k] = ledger.Call{ID: idAt(time.Now(), 10*i+k), Org: org, User: "ann"}
			var err error
			if holds[k], err = s.Hold(ctx, Terms{Limits: limits, Call: calls[k], Max: Amounts{Cost: 100, Tokens: 10}, Expected: cost(1)}); err != nil {
				t.Fatal(err)
			}
		}
		must := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		_, err := s.Extend(ctx, holds[0], Amounts{Cost: 50, Tokens: 5})
		must("extend", err)
		must("renew", s.renew(ctx, org, holds))
		_, err = s.Settle(ctx, holds[0], Settlement{Actual: Amounts{Cost: 30, Tokens: 3}})
		must("settle", err)
		must("void", s.Void(ctx, holds[1]))
		must("end the lease", rdb.ZAdd(ctx, ledger.Key(org, "leases"), redis.Z{Score: 1, Member: holds[2].ID}).Err())
		n, err := s.Expiry.Sweep(ctx, org)
		must("sweep", err)
		list, err := s.Peek(ctx, limits, calls[0])
		must("peek", err)
		if n != 1 || list[0].Used != 130 || list[4].Used != 13 || list[3].Used != 0 {
			t.Fatalf("%d expired, limits %+v", n, list)
		}
		_, err = s.Settle(ctx, holds[2], Settlement{Actual: Amounts{Cost: 20, Tokens: 2}})
		must("late settle", err)
		for _, limit := range limits {
			must("reset", s.Reset(ctx, limit, calls[0]))
		}
		booked := int64(0)
		must("entries", s.Ledger.Entries(ctx, org, time.Time{}, time.Time{}, func(e ledger.Entry) error { booked += int64(e.Cost); return nil }))
		_, err = s.Ledger.Rollups(ctx, org, time.Now(), time.Now().Add(time.Second))
		must("rollups", err)
		if booked != 50 {
			t.Fatalf("%d booked", booked)
		}
	}
	if len(nodes) < 2 {
		t.Fatal("all orgs are on one node")
	}
}
