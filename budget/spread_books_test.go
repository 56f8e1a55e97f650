package budget

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// TestSpreadCorrections: a correction is made once, whatever the spread is when it is repeated.
func TestSpreadCorrections(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newSpread(t, rdb, 1, Options{})
		limit := costLimit("user", User, hour(100))
		f.charge(3, limit)
		for i, parts := range []int{1, 16, 5, 1} {
			for round, again := range []int{parts, 64, 2} {
				f.parts = again
				a := ledger.Adjustment{ID: fmt.Sprintf("fix-%d", i), Call: ledger.Call{Org: f.org, User: "user2"}, Amount: 3, By: "ops", Reason: "test"}
				done, err := f.Adjust(ctx, a, nil)
				if err != nil || done.Replayed != (round > 0) {
					t.Fatalf("correction %d, round %d: %+v, %v", i, round, done, err)
				}
			}
			f.charge(3, limit) // so that all parts are known
		}
		_, _, sum := f.entries(f.Ledger.Entries)
		if want := pricing.Nano(5*3*7 + 4*3); sum != want {
			t.Errorf("ledger: got %d, want %d", sum, want)
		}
		audited := 0
		err := f.Ledger.Audit(ctx, f.org, time.Time{}, time.Time{}, func(ledger.AuditRecord) error { audited++; return nil })
		if err != nil || audited != 4 {
			t.Errorf("got %d records of corrections, %v; want 4", audited, err)
		}
	})
}

// TestSpreadReconcile: charges that came too late are listed, and resolved in their parts.
func TestSpreadReconcile(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newSpread(t, rdb, 16, Options{})
		for user := range 6 {
			h := f.lateHold(user)
			if _, err := f.Settle(ctx, h, Settlement{Actual: cost(5)}); !errors.Is(err, ErrTooOld) {
				t.Fatalf("late: %v", err)
			}
		}
		list, err := f.Ledger.Reconcile(ctx, f.org, 100)
		if err != nil || len(list) != 6 {
			t.Fatalf("got %d charges, %v; want 6", len(list), err)
		}
		for _, e := range list {
			if _, err := f.Resolve(ctx, e, ledger.Resolution{Charge: true, By: "ops", Reason: "test"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if list, err := f.Ledger.Reconcile(ctx, f.org, 100); err != nil || len(list) != 0 {
			t.Errorf("still listed: %+v, %v", list, err)
		}
		if _, _, sum := f.entries(f.Ledger.Entries); sum != 30 {
			t.Errorf("ledger: got %d, want 30", sum)
		}
	})
}

// lateHold returns a hold that the store has long forgotten.
func (f *spreadStore) lateHold(user int) *Hold {
	c := f.of(user)
	c.ID = idAt(start.Add(-48*time.Hour), user)
	return Lost(f.Place(c))
}
