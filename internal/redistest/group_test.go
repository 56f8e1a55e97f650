package redistest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestSentinelFailsOver(t *testing.T) {
	ctx := t.Context()
	g := StartSentinel(t, 1)
	if !g.LinksInUse() {
		t.Fatal("the replica does not follow over its link")
	}
	rdb := g.Client()
	if err := rdb.Set(ctx, "a", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	old := g.Primary()
	time.Sleep(200 * time.Millisecond) // a replica that lags loses the key: not what is tried here
	old.Kill()
	began := time.Now()
	g.wait("another primary", func() bool { return g.Primary() != old })
	g.wait("the client to follow", func() bool {
		return rdb.Get(ctx, "a").Val() == "1" && rdb.Set(ctx, "a", "1", 0).Err() == nil
	})
	t.Logf("writes again after %s", time.Since(began).Round(10*time.Millisecond))
}

func TestClusterMovesASlot(t *testing.T) {
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
