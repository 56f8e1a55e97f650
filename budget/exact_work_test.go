package budget

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// filled is a fixture with an exact window of 15: 5,000 charges have left it, a charge of 10 has
// not.
type filled struct {
	*fixture
	limits []Limit
	runs   *runs
}

// runs counts script runs, and the most elements that one of them removed from a sorted set.
type runs struct {
	redis.Hook
	sizes func() int64
	n     int
	most  int64
}

func (r *runs) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		before := r.sizes()
		err := next(ctx, cmd)
		r.n++
		r.most = max(r.most, before-r.sizes())
		return err
	}
}

func (r *runs) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *runs) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// newFilled fills a window with charges of 1 and waits until they have left it.
func newFilled(t *testing.T, rdb *redis.Client) *filled {
	t.Helper()
	ctx := t.Context()
	f := &filled{
		fixture: newFixture(t, rdb, Options{}),
		limits:  []Limit{costLimit("exact", User, Shape{Kind: ExactWindow, Amount: 10_000, Window: time.Minute})},
	}
	f.settle(ctx, f.hold(ctx, f.limits, 1), 1)
	h, err := f.binder.unheld(f.limits, f.call())
	if err != nil {
		t.Fatal(err)
	}
	window := h.keys()[0]
	parts := []redis.Z{{Member: "!used", Score: -1 - 5000}}
	for i := range 4999 {
		parts = append(parts, redis.Z{Member: fmt.Sprintf("s:1:fill%d/1", i), Score: float64(f.now.Load() + int64(i))})
	}
	if err := rdb.ZAdd(ctx, window, parts...).Err(); err != nil {
		t.Fatal(err)
	}
	f.used(ctx, f.limits, [2]int64{5000, 0})
	f.pass(30 * time.Second)
	f.settle(ctx, f.hold(ctx, f.limits, 10), 10)
	f.pass(31 * time.Second)
	f.limits[0].Shape.Amount = 15
	observer := redis.NewClient(rdb.Options())
	t.Cleanup(func() { _ = observer.Close() })
	f.runs = &runs{sizes: func() int64 { return observer.ZCard(ctx, window).Val() }}
	rdb.AddHook(f.runs)
	return f
}

// TestExactWindowForgetsInSteps bounds the work of one script however much has left an exact
// window; its answers are exact all the same.
func TestExactWindowForgetsInSteps(t *testing.T) {
	const step = 500
	for name, do := range map[string]func(ctx context.Context, t *testing.T, f *filled){
		"peek": func(ctx context.Context, _ *testing.T, f *filled) { f.used(ctx, f.limits, [2]int64{10, 0}) },
		"hold": func(ctx context.Context, _ *testing.T, f *filled) { f.hold(ctx, f.limits, 5) },
		"refusal": func(ctx context.Context, t *testing.T, f *filled) {
			_, err := f.Hold(ctx, Terms{Limits: f.limits, Call: f.call(), Max: cost(6), Expected: cost(6)})
			var e *ExceededError
			if !errors.As(err, &e) || e.Binding.Used != 10 || e.Binding.Wait != 29*time.Second {
				t.Errorf("hold beyond the window: %v", err)
			}
		},
		"reset": func(ctx context.Context, t *testing.T, f *filled) {
			if err := f.Reset(ctx, f.limits[0], f.call()); err != nil {
				t.Fatal(err)
			}
			f.used(ctx, f.limits, [2]int64{0, 0})
		},
		"extend": func(ctx context.Context, t *testing.T, f *filled) {
			f.now.Add(-31 * time.Second.Microseconds()) // a hold from before they left
			f.limits[0].Shape.Amount = 10_000
			h := f.hold(ctx, f.limits, 1)
			f.pass(31 * time.Second)
			h.limits[0].Shape.Amount = 15
			if _, err := f.Extend(ctx, h, cost(4)); err != nil {
				t.Errorf("extension within the window: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, rdb *redis.Client) {
				f := newFilled(t, rdb)
				do(t.Context(), t, f)
				if f.runs.most > step {
					t.Errorf("one script took out %d parts, want at most %d", f.runs.most, step)
				}
				if f.runs.n > 5000/step+5 {
					t.Errorf("%d runs for 5000 parts", f.runs.n)
				}
			})
		})
	}
}

// TestExactWindowIsReadOnce: what has left a window is not read again, and a window that everything
// has left is dropped as a whole.
func TestExactWindowIsReadOnce(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFilled(t, rdb)
		ctx := t.Context()
		f.used(ctx, f.limits, [2]int64{10, 0})
		if left := f.runs.sizes(); left > 100+4 { // the sums and what is left
			t.Errorf("%d parts are left after a look", left)
		}
		f.runs.n = 0
		f.used(ctx, f.limits, [2]int64{10, 0})
		if f.runs.n != 1 {
			t.Errorf("%d runs for the second look", f.runs.n)
		}
	})
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFilled(t, rdb)
		f.pass(time.Minute)
		f.hold(t.Context(), f.limits, 5)
		f.used(t.Context(), f.limits, [2]int64{5, 5})
		if left := f.runs.sizes(); f.runs.n != 2 || left != 4 {
			t.Errorf("%d runs, %d members left", f.runs.n, left)
		}
	})
}
