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

// TestRefusalsAloneKnowTheTime: a full limit that only refuses and is only looked at reopens after its
// window, plus 10 s and a slot, whatever the clock does, and never announces a longer wait.
func TestRefusalsAloneKnowTheTime(t *testing.T) {
	const each = 11 * time.Second // for each time that the clock goes back
	shapes := map[string]struct {
		shape Shape
		span  time.Duration // until all is free again
	}{
		"window": {Shape{Kind: Window, Amount: 100, Window: time.Minute}, time.Minute},
		"exact":  {Shape{Kind: ExactWindow, Amount: 100, Window: time.Minute}, time.Minute},
		"bucket": {Shape{Kind: Bucket, Amount: 100, Refill: 100, Per: time.Minute}, time.Minute},
	}
	steps := map[string][]time.Duration{ // of the clock, one in each 20 s
		"none": nil, "back 150 s": {-150 * time.Second}, "back an hour": {-time.Hour},
		"back twice": {-3 * time.Minute, -time.Hour}, "after a wait": {0, -5 * time.Minute},
		"ahead": {10 * time.Minute}, "ahead and back": {time.Hour, -time.Hour},
	}
	asks := map[string]func(*fixture, Limit) Status{
		"refusals": func(f *fixture, l Limit) Status {
			if e := f.refusedBy(t.Context(), l); e != nil {
				return e.Binding
			}
			return Status{Remaining: 1}
		},
		"peeks": func(f *fixture, l Limit) Status {
			all, err := f.Peek(t.Context(), []Limit{l}, f.call())
			if err != nil {
				t.Fatal(err)
			}
			return all[0]
		},
	}
	both(t, func(t *testing.T, rdb *redis.Client) {
		for name, s := range shapes {
			for step, jumps := range steps {
				for how, ask := range asks {
					f := newFixture(t, rdb, Options{Lease: 48 * time.Hour})
					l := costLimit("full", Org, s.shape)
					f.settle(t.Context(), f.hold(t.Context(), []Limit{l}, 100), 100)
					for passed := time.Duration(0); ; passed += time.Second {
						if i := int(passed / (20 * time.Second)); passed%(20*time.Second) == 0 && i < len(jumps) {
							f.pass(jumps[i])
						}
						st := ask(f, l)
						if st.Remaining == 100 || how == "refusals" && st.Remaining > 0 {
							break
						}
						if left := s.span + time.Duration(len(jumps)+1)*each - passed; st.Reset > left || st.Wait > left {
							t.Errorf("%s, %s, %s: after %s it resets in %s, wait %s", name, step, how, passed, st.Reset, st.Wait)
							break
						}
						f.pass(time.Second)
					}
				}
			}
		}
	})
}
