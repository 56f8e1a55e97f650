package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	via := ""
	g := StartSentinel(t, 1, func(addr string) string {
		via = NewCounter(t, addr).Addr
		return via
	})
	if got := g.Follows(g.Nodes[1]); got != via {
		t.Fatalf("the replica follows %s, want %s", got, via)
	}
	rdb := g.Client()
	if err := rdb.Set(ctx, "a", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	old := g.Primary()
	g.wait("the replica to have the key", func() bool { // a replica that lags would lose it
		return g.text(g.Nodes[1], "exists", "a") == "1"
	})
	old.Kill()
	g.wait("another primary", func() bool { return g.Primary() != old })
	g.wait("the client to follow", func() bool {
		return rdb.Get(ctx, "a").Val() == "1" && rdb.Set(ctx, "a", "1", 0).Err() == nil
	})
}

func TestClusterMovesASlot(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g := StartCluster(t, 2, 0)
	rdb := g.Client()
	for _, key := range []string{"{o}a", "{o}b", "{p}c"} {
		if err := rdb.Set(ctx, key, "1", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	from := g.Owner("{o}a")
	to := g.Nodes[0]
	if to == from {
		to = g.Nodes[1]
	}
	if n := g.MoveSlot("{o}a", to, 0); n != 2 || g.Owner("{o}b") != to {
		t.Fatalf("%d keys moved, owner %s", n, g.Owner("{o}b").Addr)
	}
	if rdb.Get(ctx, "{o}a").Val() != "1" {
		t.Fatal("the key is gone")
	}
	if err := redis.NewScript("return redis.call('GET', 'x{o}') or 1").Run(ctx, rdb, []string{"{p}c"}).Err(); err == nil && g.Owner("{p}c") != to {
		t.Fatal("a script may touch another node's key")
	}
}
