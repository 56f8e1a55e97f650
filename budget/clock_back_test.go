package budget

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestClockGoesBack: when Redis's clock goes back, for good or after it was ahead, full limits
// reopen after the length of their window, not earlier, and stay open.
func TestClockGoesBack(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		for name, limit := range map[string]Limit{
			"window": costLimit("win", Org, Shape{Kind: Window, Amount: 100, Window: time.Minute}),
			"exact":  costLimit("exact", Org, Shape{Kind: ExactWindow, Amount: 100, Window: time.Minute}),
			"bucket": costLimit("bucket", Org, Shape{Kind: Bucket, Amount: 100, Refill: 100, Per: time.Minute}),
		} {
			for _, back := range []time.Duration{20 * time.Second, 5 * time.Minute, 30 * time.Hour} {
				f := newFixture(t, rdb, Options{Lease: 48 * time.Hour})
				h := f.hold(ctx, []Limit{limit}, 100)
				f.pass(-back)
				e := f.refusedBy(ctx, limit)
				if e == nil || e.Binding.Wait > 63*time.Second {
					t.Fatalf("%s, %s back: %+v", name, back, e)
				}
				f.settle(ctx, h, 100)
				one := 600 * time.Millisecond // time in which a bucket frees capacity for one
				if limit.Shape.Kind != Bucket {
					one = time.Minute
				}
				f.pass(one - 2*time.Millisecond)
				if e := f.refusedBy(ctx, limit); e == nil {
					t.Fatalf("%s, %s back: open early", name, back)
				}
				f.pass(time.Minute + 3*time.Second - one)
				for range 10 { // time advances
					f.settle(ctx, f.hold(ctx, []Limit{limit}, 90), 90)
					f.pass(time.Minute + 3*time.Second)
				}
			}
		}
	})
}
