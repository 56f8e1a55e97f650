package queue

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
)

// On a cluster of three nodes, with the program's own client, every step of a job uses only
// the keys of one slot: jobs of six pools and orgs on all nodes run once each, even after a
// pool has moved.
func TestCluster(t *testing.T) {
	t.Parallel()
	group := redistest.StartCluster(t, 3, 0)
	rdb := group.Client()
	scripts := redisconn.Pipelined(redistest.DB(rdb))
	var pools []Pool
	nodes := map[*redistest.Server]bool{}
	for i := range 6 {
		p := Pool{ID: fmt.Sprintf("pool%d", i), RPM: 60_000, TPM: 1e6, Concurrency: 8}
		pools = append(pools, p)
		nodes[group.Owner(jobKey(p.ID, ""))] = true
	}
	if len(nodes) < 2 {
		t.Fatalf("all pools are on one node")
	}
	q, err := New(redistest.DB(rdb), pools, Options{Scripts: scripts, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{Queue: q, t: t}

	// By hand, so that each script's own error shows.
	j := e.put(e.job("pool0", "acme", "ann", Async, 10))
	c := e.claimOne("pool0", j)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.finish(t.Context(), Succeeded, Verdict{}, ""); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Job(t.Context(), "acme", j.ID); err != nil || got.State != Succeeded {
		t.Fatalf("job %+v, %v", got, err)
	}

	defer e.run(noop, WorkerOptions{})()
	for _, moved := range []bool{false, true} {
		if moved {
			from, to := group.Owner(jobKey("pool1", "")), group.Nodes[0]
			if to == from {
				to = group.Nodes[1]
			}
			t.Logf("moved %d keys of a pool", group.MoveSlot(jobKey("pool1", ""), to, 0))
		}
		var jobs []*Job
		for i := range 30 {
			jobs = append(jobs, e.put(e.job(pools[i%6].ID, fmt.Sprintf("org%d", i%5), "ann", Class(i%3+1), 10)))
		}
		for _, j := range jobs {
			redistest.Eventually(t, "job succeeded", func() bool { return e.state(j) == Succeeded })
		}
		g, err := e.Take(t.Context(), "pool1", fmt.Sprintf("call%v", moved), Flow{"acme", "ann"}, 10)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Give(t.Context(), g, true); err != nil {
			t.Fatal(err)
		}
	}
}
