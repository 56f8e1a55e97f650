package budget

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestEndMany: one batch settles and voids many holds independently. One that is absurd or has
// ended does not affect the others, and repeating the batch charges nothing.
func TestEndMany(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, Options{})
		ctx := t.Context()
		limits := []Limit{costLimit("hour", User, hour(1000))}
		a, b, void, absurd, ended := f.hold(ctx, limits, 100), f.hold(ctx, limits, 100),
			f.hold(ctx, limits, 100), f.hold(ctx, limits, 100), f.hold(ctx, limits, 100)
		if err := f.Void(ctx, ended); err != nil {
			t.Fatal(err)
		}
		if err := rdb.ScriptFlush(ctx).Err(); err != nil { // the first batch finds no script
			t.Logf("scripts stay loaded: %v", err) // miniredis
		}
		endings := []Settle{
			{Hold: a, Settlement: &Settlement{Actual: cost(40)}},
			{Hold: b, Settlement: &Settlement{Actual: cost(130)}},
			{Hold: void},
			{Hold: absurd, Settlement: &Settlement{Actual: cost(-1)}},
			{Hold: ended},
		}
		for round := range 2 {
			done := f.SettleAll(ctx, endings)
			for i, want := range []int64{40, 130, 0, 0, 0} {
				if got := done[i]; int64(got.Receipt.Charged) != want || (got.Err != nil) != (i == 3) {
					t.Errorf("round %d: ending %d: %+v, want a charge of %d", round, i, got, want)
				}
			}
			if done[1].Receipt.Overrun != 30 || done[0].Receipt.Replayed != (round == 1) {
				t.Errorf("round %d: %+v %+v", round, done[0], done[1])
			}
			f.used(ctx, limits, [2]int64{270, 100}) // the absurd one is still held
		}
	})
}

// TestEndManyUnavailable: a store that does not answer fails each ending separately.
func TestEndManyUnavailable(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	f := newFixture(t, rdb, Options{})
	h := f.hold(t.Context(), nil, 1)
	srv.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for i, done := range f.SettleAll(ctx, []Settle{{Hold: h}, {Hold: h, Settlement: &Settlement{}}}) {
		if !errors.Is(done.Err, ErrUnavailable) {
			t.Errorf("ending %d: %v", i, done.Err)
		}
	}
}
