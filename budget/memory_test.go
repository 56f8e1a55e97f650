package budget

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// TestMemoryOfLimits logs and bounds the memory of one limit of one subject in Redis, after one
// call and after calls all over its window. The figures are in docs/scaling.md.
func TestMemoryOfLimits(t *testing.T) {
	rdb := shared(t)
	for _, c := range []struct {
		name     string
		shape    Shape
		calls    int
		apart    time.Duration
		one, all int64 // maximum bytes
	}{
		{"window of an hour", hour(1e15), 240, 15 * time.Second, 250, 4000},
		{"exact window, 60 calls", Shape{Kind: ExactWindow, Amount: 1e15, Window: time.Minute}, 60, time.Second, 400, 12000},
		{"bucket, settled at once", Shape{Kind: Bucket, Amount: 1e15, Refill: 50 * usd, Per: time.Hour}, 240, time.Second, 350, 3000},
		{"bucket, 64 calls open", Shape{Kind: Bucket, Amount: 1e15, Refill: 50 * usd, Per: time.Hour}, 240, time.Second, 350, 3000},
		{"calendar month", Shape{Kind: Calendar, Amount: 1e15, Calendar: "month"}, 240, time.Second, 250, 250},
		{"concurrency, 64 calls open", Shape{Kind: Concurrent, Amount: 1e15}, 240, 100 * time.Millisecond, 250, 8000},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			f := newFixture(t, rdb, Options{})
			limit := costLimit("l", User, c.shape)
			if c.shape.Kind == Concurrent {
				limit.Metric = Concurrency
			}
			limits := []Limit{limit}
			size := func() int64 {
				return rdb.MemoryUsage(ctx, ledger.Key(f.org, limit.stateFor(f.call(), f.opts.Lease).Key), 0).Val()
			}
			open := 1
			if c.name[len(c.name)-4:] == "open" {
				open = 64
			}
			var holds []*Hold
			var first, most int64
			for range c.calls {
				holds = append(holds, f.hold(ctx, limits, usd/100))
				if len(holds) >= open {
					f.settle(ctx, holds[0], usd/50)
					holds = holds[1:]
				}
				f.pass(c.apart)
				if first == 0 {
					first = size()
				}
				most = max(most, size())
			}
			t.Logf("%d bytes after one call, at most %d later", first, most)
			if c.shape.Kind != Concurrent && first == 0 || first > c.one || most == 0 || most > c.all {
				t.Errorf("%d bytes after one call (%d), at most %d later (%d)", first, c.one, most, c.all)
			}
		})
	}
}
