package budget

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

func TestLedger(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{Lease: time.Minute})
		f.now.Store(time.Date(2026, 11, 18, 23, 59, 0, 0, time.UTC).UnixMicro())
		usage := pricing.Usage{Input: 1200, CachedInput: 1000, Output: 34, Reasoning: 30, Requests: 1}
		settle := func(h *Hold, n int64, estimated bool) {
			t.Helper()
			part := pricing.Nano(n - 60)
			_, err := f.Settle(ctx, h, Settlement{
				Actual: cost(n), Usage: usage, Split: pricing.Split{Input: part, CachedInput: 10, CacheWrite: 20, Output: 25, Fees: 5}, Estimated: estimated, Outcome: "completed", Status: 200,
				UpstreamID: "chatcmpl-1", ServiceTier: "default", Took: 1500 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		big := int64(1<<52 - 5)
		settle(f.hold(ctx, nil, big), big, false) // must not be printed as 4.5e+15
		settle(f.hold(ctx, nil, 100), 130, true)
		dead := f.hold(ctx, nil, 500)
		if err := f.Void(ctx, f.hold(ctx, nil, 7)); err != nil {
			t.Fatal(err)
		}
		f.pass(2 * time.Minute) // the next day
		if n, err := f.Expiry.Sweep(ctx, f.org); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		settle(dead, 200, false)

		var got []ledger.Entry
		err := f.Ledger.Entries(ctx, f.org, time.Time{}, time.Time{}, func(e ledger.Entry) error {
			got = append(got, e)
			return nil
		})
		if err != nil || len(got) != 4 {
			t.Fatalf("%d entries, %v", len(got), err)
		}
		for i, want := range []struct {
			kind                 string
			cost, total, overrun pricing.Nano
			estimated            bool
		}{
			{ledger.KindSettle, pricing.Nano(big), pricing.Nano(big), 0, false},
			{ledger.KindSettle, 130, 130, 30, true},
			{ledger.KindExpire, 500, 500, 0, true},
			{ledger.KindLate, -300, 200, 0, false},
		} {
			e := got[i]
			if e.Kind != want.kind || e.Cost != want.cost || e.Total != want.total || e.Overrun != want.overrun || e.Estimated != want.estimated {
				t.Errorf("entry %d = %+v, want %+v", i, e, want)
			}
		}
		e := got[1]
		if pricing.Usage(e.Usage) != usage || e.User != "ann" || e.Key != "k1" || e.Model != "gpt-x" || e.Status != 200 ||
			e.UpstreamID != "chatcmpl-1" || e.TookMS != 1500 || e.At.IsZero() || e.ID == "" {
			t.Errorf("entry = %+v", e)
		}

		days, err := f.Ledger.Rollups(ctx, f.org, time.Date(2026, 11, 18, 5, 0, 0, 0, time.UTC), time.Date(2026, 11, 19, 5, 0, 0, 0, time.UTC))
		if err != nil || len(days) != 2 {
			t.Fatalf("roll-ups %+v, %v", days, err)
		}
		first := ledger.Rollup{
			Begin: time.Date(2026, 11, 18, 0, 0, 0, 0, time.UTC), User: "ann", Key: "k1",
			Provider: "openai", Endpoint: "chat.completions", Model: "gpt-x",
		}
		second := first
		second.Begin = first.Begin.Add(24 * time.Hour)
		first.Sums = ledger.Sums{
			Cost: pricing.Nano(big) + 130, Estimated: 130, Overrun: 30, Calls: 2, Input: 2400, Cached: 2000, Output: 68,
			Split: pricing.Split{Input: pricing.Nano(big) + 10, CachedInput: 20, CacheWrite: 40, Output: 50, Fees: 10},
		}
		second.Sums = ledger.Sums{
			Cost: 200, Estimated: 0, Calls: 1, Input: 1200, Cached: 1000, Output: 34,
			Split: pricing.Split{Input: 140, CachedInput: 10, CacheWrite: 20, Output: 25, Fees: 5},
		}
		if days[0] != first || days[1] != second {
			t.Errorf("roll-ups\n%+v\n%+v, want\n%+v\n%+v", days[0], days[1], first, second)
		}
	})
}

// TestRollupUnmetered: a charge without usage is in no class, and is corrected there too.
func TestRollupUnmetered(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{Lease: time.Minute})
		late, voided := f.hold(ctx, nil, 500), f.hold(ctx, nil, 70)
		unmetered := func(want pricing.Nano, wantSplit pricing.Split) {
			t.Helper()
			list, err := f.Ledger.Rollups(ctx, f.org, start, start.Add(time.Minute))
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			if r := list[0]; r.Unmetered() != want || r.Split != wantSplit {
				t.Fatalf("unmetered %d of %d, split %+v, want %d, %+v", r.Unmetered(), r.Cost, r.Split, want, wantSplit)
			}
		}
		f.pass(2 * time.Minute)
		if n, err := f.Expiry.Sweep(ctx, f.org); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		unmetered(570, pricing.Split{})
		split := pricing.Split{Input: 150, Output: 50}
		if _, err := f.Settle(ctx, late, Settlement{Actual: cost(200), Split: split}); err != nil {
			t.Fatal(err)
		}
		unmetered(70, split)
		if err := f.Void(ctx, voided); err != nil {
			t.Fatal(err)
		}
		unmetered(0, split)
		if _, err := f.Settle(ctx, f.hold(ctx, nil, 9), Settlement{Actual: cost(9), Split: pricing.Split{Input: 8}}); err != nil {
			t.Fatal(err)
		}
		unmetered(9, split) // a split that does not add up is ignored
	})
}

// TestRollupsAreBounded: names that callers choose cannot fill up a day.
func TestRollupsAreBounded(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		settle := func(model string) {
			c := f.call()
			c.Model = model
			h, err := f.Hold(ctx, Terms{Call: c, Max: cost(5), Expected: cost(5)})
			if err != nil {
				t.Fatal(err)
			}
			f.settle(ctx, h, 5)
		}
		settle("known|with|bars")
		settle(strings.Repeat("\u20ac", 100))
		f.settler.options.fields = 2
		for _, m := range []string{"new1", "new2", "known|with|bars"} {
			settle(m)
		}
		list, err := f.Ledger.Rollups(ctx, f.org, start, start.Add(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]pricing.Nano{}
		for _, r := range list {
			if r.User == "ann" {
				got[r.Model] = r.Cost
			}
		}
		want := map[string]pricing.Nano{"known|with|bars": 10, strings.Repeat("\u20ac", 42): 5, ledger.OtherModels: 10}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
