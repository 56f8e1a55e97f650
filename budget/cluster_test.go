package budget

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// On a cluster of three primaries and their replicas, an org's slot moves to
// another node and then that node dies, all under load.
func TestCluster(t *testing.T) {
	t.Parallel()
	group := redistest.StartCluster(t, 3, 1)
	l := newCallers(t, 2*time.Second, 4, group.Client(), group.Client())
	l.forgets = true
	l.start(8)
	time.Sleep(forLong(500*time.Millisecond, 10*time.Second))

	org := key(l.orgs[0], "ledger")
	from, to := group.Owner(org), group.Nodes[0]
	if to == from {
		to = group.Nodes[1]
	}
	began := time.Now()
	keys := group.MoveSlot(org, to, 40*time.Millisecond)
	moved := time.Since(began)
	l.again(time.Now())
	l.mu.Lock()
	t.Logf("slot with %d keys moved in %s; longest without a hold in its org %s, unanswered %d",
		keys, moved.Round(time.Millisecond), l.stall[l.orgs[0]].Round(time.Millisecond), l.unknown)
	l.mu.Unlock()
	l.within()
	time.Sleep(300 * time.Millisecond)

	to.Kill()
	killed := time.Now()
	for group.Owner(org) == to && time.Since(killed) < 30*time.Second {
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("the cluster gave its slots to the replica after %s", time.Since(killed).Round(10*time.Millisecond))
	l.again(killed)
	t.Logf("holds of all orgs were answered again %s after a primary's death", time.Since(killed).Round(10*time.Millisecond))
	to.Restart()
	group.Healthy()
	l.stop()
	l.tell()
	n, sum, _ := l.missing()
	users, over := l.over()
	t.Logf("lost %d of %d answered settles, over %d; %d users were over their budget, by %d in all", n, len(l.told), sum, users, over)
	if n > 8 && l.judged() {
		t.Errorf("lost %d settles without lag", n)
	}
	l.replay()
	l.check()
}

// Every script keeps to one slot and to the keys it declares: each node holds
// some of the orgs.
func TestClusterScripts(t *testing.T) {
	t.Parallel()
	group := redistest.StartCluster(t, 3, 0)
	rdb := group.Client()
	ctx := t.Context()
	nodes := map[*redistest.Server]bool{}
	for i := range 8 {
		s := New(rdb, Options{})
		l := callers{t: t}
		org := fmt.Sprintf("org%d", i)
		nodes[group.Owner(key(org, ""))] = true
		limits := append(l.limits(), Limit{ID: "exact", Subject: User, Metric: Tokens, Shape: Shape{Kind: ExactWindow, Amount: 100, Window: time.Minute}})
		calls := make([]Call, 3)
		holds := make([]*Hold, 3)
		for k := range calls {
			calls[k] = Call{ID: idAt(time.Now(), 10*i+k), Org: org, User: "ann"}
			var err error
			if holds[k], err = s.Hold(ctx, limits, calls[k], Amounts{Cost: 100, Tokens: 10}, cost(1)); err != nil {
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
		must("end the lease", rdb.ZAdd(ctx, key(org, "leases"), redis.Z{Score: 1, Member: holds[2].ID}).Err())
		n, err := s.Sweep(ctx, org)
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
		must("entries", s.Entries(ctx, org, time.Time{}, time.Time{}, func(e Entry) error { booked += int64(e.Cost); return nil }))
		_, err = s.Rollups(ctx, org, time.Now(), time.Now().Add(time.Second))
		must("rollups", err)
		if booked != 50 {
			t.Fatalf("%d booked", booked)
		}
	}
	if len(nodes) < 2 {
		t.Fatal("all orgs are on one node")
	}
}
