package queue

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/quota"
)

// TestRunningCountsLiveCalls checks that a pool's live calls and jobs count as running once
// each, whether or not the pool bounds open calls.
func TestRunningCountsLiveCalls(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	e := newEnv(t, Options{Metrics: reg}, Pool{ID: "p", Concurrency: 10}, Pool{ID: "q"})
	ctx := t.Context()
	for _, pool := range []string{"p", "q"} {
		e.put(e.job(pool, "acme", "bob", Batch, 10))
		claims := e.claim(pool, 1)
		if err := claims[0].Start(ctx); err != nil {
			t.Fatal(err)
		}
		var open []*quota.Grant
		for range 3 {
			g, err := e.Take(ctx, pool, wire.NewCallID(), Flow{"acme", "ann"}, 1)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, g)
		}
		if err := e.Give(ctx, open[0], true); err != nil {
			t.Fatal(err)
		}
		d, err := e.Depth(ctx, pool)
		if err != nil || d.Live != 2 || d.Claims != 1 || d.Running() != 3 {
			t.Errorf("%s: got %d live and %d claimed (%v), want 2 and 1", pool, d.Live, d.Claims, err)
		}
	}
	e.metrics.scrapeIn(ctx)
	if n, err := testutil.GatherAndCount(reg, "llmguard_queue_running_calls"); n != 4 || err != nil {
		t.Errorf("got %d series (%v), want live calls and jobs of two pools", n, err)
	}
}
