package ledger_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// TestHoursAddUpToTheDay: each charge is in the sums of its hour as well as of its day, however it
// was written: alone, late, manually, or joined with others.
func TestHoursAddUpToTheDay(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newStill(t, rdb, budget.Options{Lease: time.Minute})
		day := time.Date(2026, 11, 18, 0, 0, 0, 0, time.UTC)
		f.now.Store(day.Add(9*time.Hour + 30*time.Minute).UnixMicro())
		f.settle(ctx, f.hold(ctx, 100), 70)
		dead := f.hold(ctx, 500)
		f.pass(time.Hour)
		if n, err := f.Expiry.Sweep(ctx, f.org); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		f.pass(time.Hour)
		f.settle(ctx, dead, 200)
		if _, err := f.Adjust(ctx, ledger.Adjustment{ID: "a1", Call: f.call(), Amount: -20, By: "carla", Reason: "r"}, nil); err != nil {
			t.Fatal(err)
		}
		days, err := f.Ledger.Rollups(ctx, f.org, day, day.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		hours, err := f.Ledger.HourRollups(ctx, f.org, day, day.Add(24*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		var all, each ledger.Sums
		var costs []pricing.Nano
		var at []int
		for _, r := range days {
			all.Add(r.Sums)
		}
		for _, r := range hours {
			each.Add(r.Sums)
			costs, at = append(costs, r.Cost), append(at, r.Begin.Hour())
		}
		if all != each || !slices.Equal(costs, []pricing.Nano{70, 500, -320}) || !slices.Equal(at, []int{9, 10, 11}) {
			t.Errorf("hours %v cost %v: %+v, the day %+v", at, costs, each, all)
		}
		late, err := f.Ledger.HourRollups(ctx, f.org, day.Add(10*time.Hour+59*time.Minute), day.Add(11*time.Hour))
		if err != nil || len(late) != 1 || late[0].Cost != 500 {
			t.Errorf("the hour from ten: %+v, %v", late, err)
		}
	})
}

// TestDaysWithoutHours: a day written by a version without hourly sums is returned as one line, and
// never lost.
func TestDaysWithoutHours(t *testing.T) {
	ctx := t.Context()
	f := newStill(t, shared(t), budget.Options{})
	f.settle(ctx, f.hold(ctx, 100), 70)
	day := start.UTC().Truncate(24 * time.Hour)
	if err := f.rdb.Del(ctx, ledger.Key(f.org, ledger.HoursKey(day.Unix()/86400))).Err(); err != nil {
		t.Fatal(err)
	}
	got, err := f.Ledger.HourRollups(ctx, f.org, day, day.Add(24*time.Hour))
	if err != nil || len(got) != 1 || got[0].Hour || got[0].Cost != 70 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestHoursAreForgotten: hourly sums expire after 14 days.
func TestHoursAreForgotten(t *testing.T) {
	ctx := t.Context()
	f := newStill(t, shared(t), budget.Options{})
	f.settle(ctx, f.hold(ctx, 100), 70)
	ttl, err := f.rdb.TTL(ctx, ledger.Key(f.org, ledger.HoursKey(start.Unix()/86400))).Result()
	if err != nil || ttl < 14*24*time.Hour || ttl > 15*24*time.Hour {
		t.Errorf("they end in %s, %v", ttl, err)
	}
}
