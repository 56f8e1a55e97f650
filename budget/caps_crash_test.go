package budget

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
)

// TestHoldWithoutItsCapsIsVoid: a call that not all of its spend caps have admitted was never sent.
// If its process dies at that point, its hold is returned without a charge, and no cap admits it
// later.
func TestHoldWithoutItsCapsIsVoid(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		limits := []Limit{
			costLimit("own", Org, hour(1000)),
			{ID: "calls", Subject: Org, Metric: Requests, Shape: hour(10)},
		}
		for _, c := range []struct {
			name  string
			after int // number of caps that hold it when the process dies
			used  int64
		}{{"none", 0, 0}, {"the first", 1, 0}, {"all", 2, 100}} {
			t.Run(c.name, func(t *testing.T) {
				rdb.FlushAll(t.Context())
				f, caps, ctx := newFixture(t, rdb, Options{}), everybody(1000), t.Context()
				call := f.call()
				terms := &Terms{Limits: limits, Caps: caps, Call: call, Max: cost(100), Expected: cost(100)}
				if _, err := f.holdOwn(ctx, terms); err != nil {
					t.Fatal(err)
				}
				for _, spend := range caps[:c.after] {
					if _, err := f.holdOwn(ctx, terms.under(spend)); err != nil {
						t.Fatal(err)
					}
				}
				f.pass(2 * time.Minute)
				f.seenForLong()
				f.round(f.sweeper())
				f.wantCaps(caps, c.used, 0)
				f.used(ctx, limits, [2]int64{c.used, 0}, [2]int64{c.used / 100, 0})
				entries := 0
				if err := f.Ledger.Entries(ctx, f.org, time.Time{}, time.Time{}, func(ledger.Entry) error { entries++; return nil }); err != nil {
					t.Fatal(err)
				}
				if entries != int(c.used/100) {
					t.Errorf("%d entries in the ledger", entries)
				}
				if _, err := f.holdOwn(ctx, terms.under(caps[1])); !errors.Is(err, ErrEnded) {
					t.Errorf("a cap admits the call later: %v", err)
				}
			})
		}
	})
}

// TestHoldFoundAfterTheHorizonIsCharged: after the horizon it is no longer known what the caps
// held. A dead hold that is found only then is charged, not treated as one that was never admitted.
func TestHoldFoundAfterTheHorizonIsCharged(t *testing.T) {
	f, caps, ctx := newFixture(t, shared(t), Options{}), everybody(1000), t.Context()
	limits := []Limit{costLimit("own", Org, Shape{Kind: Window, Amount: 1000, Window: 24 * time.Hour})}
	h := f.mustCap(limits, caps, 100)
	f.pass(3 * time.Hour)
	for _, spend := range caps {
		if n, err := f.Expiry.Sweep(ctx, spend.scope()); n != 1 || err != nil {
			t.Fatalf("%d expired, %v", n, err)
		}
		f.rdb.Del(ctx, ledger.Key(spend.scope(), chunkOf(h.Call)))
	}
	f.seenForLong()
	f.round(f.sweeper())
	f.used(ctx, limits, [2]int64{100, 0})
}
