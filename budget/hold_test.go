package budget

import (
	"errors"
	"fmt"
	"slices"
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

		_, err := f.Hold(ctx, Terms{Limits: limits, Call: f.call(), Max: cost(401), Expected: cost(401)})
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

// TestFiftyLimits: a call with the maximum number of limits, of all shapes, fits into the script
// arguments that Redis accepts, and settles below, at and above the hold.
func TestFiftyLimits(t *testing.T) {
	shapes := []Shape{
		hour(1000),
		{Kind: Bucket, Amount: 1000, Refill: 1, Per: time.Hour},
		{Kind: ExactWindow, Amount: 1000, Window: time.Hour},
		{Kind: Calendar, Amount: 1000, Calendar: "month", Location: time.UTC},
		{Kind: Fixed, Amount: 1000, Window: time.Hour},
	}
	both(t, func(t *testing.T, rdb *redis.Client) {
		for first := range shapes {
			ctx := t.Context()
			f := newFixture(t, rdb, Options{})
			var limits []Limit
			for i := range maxLimits {
				shape := shapes[(first+i)%4]
				if i > 20 {
					shape = shapes[first] // also the longest script of each kind
				}
				limits = append(limits, costLimit(fmt.Sprintf("limit%d", i), Org, shape))
			}
			all := func(used, held int64) {
				t.Helper()
				f.used(ctx, limits, slices.Repeat([][2]int64{{used, held}}, maxLimits)...)
			}
			a, b, c := f.hold(ctx, limits, 300), f.hold(ctx, limits, 300), f.hold(ctx, limits, 300)
			all(900, 900)
			f.settle(ctx, a, 100)
			all(700, 600)
			f.settle(ctx, b, 300)
			all(700, 300)
			if r := f.settle(ctx, c, 350); r.Overrun != 50 {
				t.Fatalf("receipt = %+v", r)
			}
			all(750, 0)
		}
	})
}

// TestSettleWithoutLimits: a settlement that knows none of the hold's limits settles all of them.
func TestSettleWithoutLimits(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		limits := []Limit{costLimit("org", Org, hour(1000)), costLimit("user", User, hour(1000))}
		for i, known := range [][]Limit{nil, limits[:1]} {
			h := f.hold(ctx, limits, 300)
			less, err := f.binder.unheld(known, h.Call)
			if err != nil {
				t.Fatal(err)
			}
			less.ID, less.Max = h.ID, h.Max
			if r := f.settle(ctx, less, 100); r.Charged != 100 || r.Late {
				t.Fatalf("receipt = %+v", r)
			}
			spent := int64(100 * (i + 1))
			f.used(ctx, limits, [2]int64{spent, 0}, [2]int64{spent, 0})
		}
	})
}
