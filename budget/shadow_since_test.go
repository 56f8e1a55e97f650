package budget

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestShadowIsNotedOnce: a limit in shadow mode is recorded once with its shape; another amount is
// another limit. For limits that existed before anything was recorded, the time is unknown.
func TestShadowIsNotedOnce(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		limit := costLimit("day", Org, hour(100))
		old, changed := limit, limit
		old.ID, changed.Shape.Amount = "old", 200
		note := func(org string, limits ...Limit) map[string]time.Time {
			t.Helper()
			var names []string
			for i := range limits {
				names = append(names, limits[i].Is())
			}
			if err := f.NoteShadow(ctx, org, names); err != nil {
				t.Fatal(err)
			}
			since, err := f.ShadowSince(ctx, org)
			if err != nil {
				t.Fatal(err)
			}
			return since
		}
		first := note("fresh", limit)[limit.Is()]
		if first.IsZero() {
			t.Error("a limit of a new org has no time")
		}
		f.now.Add(time.Hour.Microseconds())
		since := note("fresh", limit, changed)
		if !since[limit.Is()].Equal(first) || !since[changed.Is()].Equal(first.Add(time.Hour)) {
			t.Errorf("noted %v, want %s as before and the changed one an hour later", since, first)
		}

		f.settle(ctx, f.hold(ctx, []Limit{old}, 1), 1) // the org had calls before anything was recorded
		org := f.call().Org
		if since := note(org, old); len(since) != 0 {
			t.Errorf("noted %v, want nothing of a limit that was there before", since)
		}
		if since := note(org, old, limit); len(since) != 1 || since[limit.Is()].IsZero() {
			t.Errorf("noted %v, want the new limit alone", since)
		}
	})
}
