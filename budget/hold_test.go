package budget

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestHoldAndSettle(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		limits := []Limit{
			costLimit("hour", User, hour(1000)),
			costLimit("org", Org, Shape{Kind: Bucket, Amount: 5000, Refill: 0}),
		}
		a := f.hold(ctx, limits, 600)
		f.used(ctx, limits, [2]int64{600, 600}, [2]int64{600, 600})

		_, err := f.Hold(ctx, limits, f.call(), cost(401), cost(401))
		var e *ExceededError
		if !errors.As(err, &e) {
			t.Fatalf("hold beyond the window: %v", err)
		}
		if e.Binding.LimitID != "hour" || !e.Soon || e.Binding.Never || e.Requested != 401 {
			t.Fatalf("refusal = %+v", e)
		}
		f.used(ctx, limits, [2]int64{600, 600}, [2]int64{600, 600}) // all or nothing

		if r := f.settle(ctx, a, 250); r.Charged != 250 || r.Overrun != 0 || r.Replayed {
			t.Fatalf("receipt = %+v", r)
		}
		f.used(ctx, limits, [2]int64{250, 0}, [2]int64{250, 0})
		b := f.hold(ctx, limits, 700)
		if err := f.Void(ctx, b); err != nil {
			t.Fatal(err)
		}
		f.used(ctx, limits, [2]int64{250, 0}, [2]int64{250, 0})

		f.pass(62 * time.Minute)
		f.used(ctx, limits, [2]int64{0, 0}, [2]int64{250, 0})
	})
}
