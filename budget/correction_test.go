package budget

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// books reads everything that an adjustment may change.
func (f *fixture) books(ctx context.Context) (entries []ledger.Entry, sums ledger.Sums, audit []ledger.AuditRecord) {
	f.t.Helper()
	err := f.Ledger.Entries(ctx, f.org, time.Time{}, time.Time{}, func(e ledger.Entry) error {
		entries = append(entries, e)
		return nil
	})
	if err == nil {
		err = f.Ledger.Audit(ctx, f.org, time.Time{}, time.Time{}, func(r ledger.AuditRecord) error {
			audit = append(audit, r)
			return nil
		})
	}
	if err != nil {
		f.t.Fatal(err)
	}
	now := time.UnixMicro(f.now.Load())
	list, err := f.Ledger.Rollups(ctx, f.org, now.Add(-24*time.Hour), now.Add(time.Second))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range list {
		sums.Add(r.Sums)
	}
	return entries, sums, audit
}

// TestCreditsWithinCharges: a credit takes neither the charge of a call nor that of its user below zero, however
// many are made at the same time, and its repetition is no credit.
func TestCreditsWithinCharges(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		var calls []ledger.Call
		for range 2 {
			h := f.hold(ctx, nil, 600)
			f.settle(ctx, h, 600)
			calls = append(calls, h.Call)
		}
		credit := func(id string, c ledger.Call, amount pricing.Nano) error {
			_, err := f.Adjust(ctx, ledger.Adjustment{ID: id, Call: c, Amount: amount, By: "carla", Reason: "r", Charged: true}, nil)
			return err
		}
		all := ledger.Call{Org: calls[0].Org, User: calls[0].User}
		if err := credit("too-much", calls[0], -601); !errors.Is(err, ledger.ErrBelowZero) {
			t.Errorf("more than the call: got %v, want %v", err, ledger.ErrBelowZero)
		}
		if err := credit("too-much", all, -1201); !errors.Is(err, ledger.ErrBelowZero) {
			t.Errorf("more than the user: got %v, want %v", err, ledger.ErrBelowZero)
		}
		var made atomic.Int64
		var work sync.WaitGroup
		for i := range 8 {
			work.Go(func() {
				err := credit(fmt.Sprint("part-", i), calls[0], -200)
				if err == nil {
					made.Add(1)
				} else if !errors.Is(err, ledger.ErrBelowZero) {
					t.Error(err)
				}
			})
		}
		redistest.Wait(t, work.Wait)
		if made.Load() != 3 {
			t.Errorf("%d credits of 200 were made for a call of 600, want 3", made.Load())
		}
		for what, err := range map[string]error{
			"a debit": credit("debit", calls[0], 50), "a credit of it": credit("back", calls[0], -50),
			"its repetition": credit("back", calls[0], -50), "the rest of the user": credit("rest", all, -600),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := credit("other", calls[1], -1); !errors.Is(err, ledger.ErrBelowZero) {
			t.Errorf("a call of a user without charges: got %v, want %v", err, ledger.ErrBelowZero)
		}
	})
}

func TestAdjust(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		h := f.hold(ctx, nil, 900)
		f.settle(ctx, h, 900)
		a := ledger.Adjustment{ID: "fix-1", Call: h.Call, Amount: -400, By: "carla", Reason: "billed twice, ticket 7"}
		first, err := f.Adjust(ctx, a, nil)
		if err != nil || first.Replayed {
			t.Fatal(first, err)
		}
		f.pass(time.Hour)
		again, err := f.Adjust(ctx, a, nil)
		if err != nil || !again.Replayed || !again.At.Equal(first.At) {
			t.Fatalf("repeated: %+v, %v, want that of %s", again, err, first.At)
		}
		a.Amount = -500
		if _, err := f.Adjust(ctx, a, nil); !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("another amount under the same id: %v", err)
		}
		entries, sums, audit := f.books(ctx)
		if len(entries) != 2 || sums.Cost != 500 || sums.Adjusted != -400 || sums.Calls != 1 || sums.Unmetered() != 900 {
			t.Errorf("%d entries, sums %+v", len(entries), sums)
		}
		e := entries[len(entries)-1]
		want := ledger.Correction{Corrects: h.Call.ID, By: "carla", Reason: "billed twice, ticket 7"}
		if e.Kind != ledger.KindAdjust || e.Cost != -400 || e.ID != "fix-1" || e.Correction != want || e.User != "ann" || e.Model != "gpt-x" || e.LedgerID == "" {
			t.Errorf("entry %+v", e)
		}
		if len(audit) != 1 || audit[0].Correction != want || audit[0].Amount != -400 || audit[0].Action != "usage.adjust" || !audit[0].At.Equal(first.At) {
			t.Errorf("audit %+v", audit)
		}
		for _, k := range rdb.Keys(ctx, ledger.Key(f.org, "*")).Val() {
			if rdb.PTTL(ctx, k).Val() <= 0 {
				t.Errorf("%s lives for ever", k)
			}
		}
		f.pass(64*24*time.Hour - 2*time.Hour)
		a.Amount = -400
		if again, err := f.Adjust(ctx, a, nil); err != nil || !again.Replayed {
			t.Errorf("after nearly %s: %+v, %v", 64*24*time.Hour, again, err)
		}
	})
}

// TestAdjustLimits: cost limits of every shape follow an adjustment, down to what open holds hold;
// other limits do not change.
func TestAdjustLimits(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{Lease: 100 * time.Hour})
		limits := []Limit{
			costLimit("ring", User, hour(10_000)),
			costLimit("log", User, Shape{Kind: ExactWindow, Amount: 10_000, Window: time.Hour}),
			costLimit("bucket", User, Shape{Kind: Bucket, Amount: 10_000}),
			costLimit("day", User, Shape{Kind: Calendar, Amount: 10_000, Calendar: "day", Location: time.UTC}),
			{ID: "calls", Subject: User, Metric: Requests, Shape: hour(100)},
			{ID: "open", Subject: User, Metric: Concurrency, Shape: Shape{Kind: Concurrent, Amount: 100}},
		}
		same := func(used, held, calls int64) {
			t.Helper()
			c := [2]int64{used, held}
			f.used(ctx, limits, c, c, c, c, [2]int64{calls, 1}, [2]int64{1, 1})
		}
		f.settle(ctx, f.hold(ctx, limits, 300), 300)
		f.pass(10 * time.Minute)
		f.settle(ctx, f.hold(ctx, limits, 50), 50)
		f.hold(ctx, limits, 20)
		same(370, 20, 3)
		adjust := func(id string, n pricing.Nano) {
			t.Helper()
			a := ledger.Adjustment{ID: id, Call: f.call(), Amount: n, By: "carla", Reason: "test"}
			for range 2 {
				if _, err := f.Adjust(ctx, a, limits); err != nil {
					t.Fatal(err)
				}
			}
		}
		adjust("a", -100)
		same(270, 20, 3)
		adjust("b", -205)
		same(65, 20, 3)
		f.pass(51 * time.Minute) // the first charge has left the windows
		c := [2]int64{65, 20}
		f.used(ctx, limits[:4], c, c, c, c)
		adjust("c", -1000)
		same(20, 20, 2)
		adjust("d", 70)
		same(90, 20, 2)
	})
}

func TestAdjustNeeds(t *testing.T) {
	f := newFixture(t, shared(t), Options{})
	good := ledger.Adjustment{ID: "x", Call: ledger.Call{Org: f.org, User: "ann"}, Amount: 1, By: "carla", Reason: "why"}
	for name, spoil := range map[string]func(*ledger.Adjustment){
		"an id":          func(a *ledger.Adjustment) { a.ID = "" },
		"a short id":     func(a *ledger.Adjustment) { a.ID = strings.Repeat("x", 65) },
		"an amount":      func(a *ledger.Adjustment) { a.Amount = 0 },
		"a sane amount":  func(a *ledger.Adjustment) { a.Amount = -MaxAmount - 1 },
		"a reason":       func(a *ledger.Adjustment) { a.Reason = " " },
		"one line":       func(a *ledger.Adjustment) { a.Reason = "a\nb" },
		"a short reason": func(a *ledger.Adjustment) { a.Reason = strings.Repeat("x", 1001) },
		"somebody":       func(a *ledger.Adjustment) { a.By = "" },
		"an org":         func(a *ledger.Adjustment) { a.Call.Org = "" },
	} {
		a := good
		spoil(&a)
		if _, err := f.Adjust(t.Context(), a, nil); err == nil {
			t.Errorf("adjusted without %s", name)
		}
	}
	if entries, _, audit := f.books(t.Context()); len(entries)+len(audit) != 0 {
		t.Errorf("%v, %v", entries, audit)
	}
}

func TestResolve(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{Horizon: time.Hour})
		limits := []Limit{costLimit("ring", User, hour(10_000))}
		split := pricing.Split{Input: 20, Output: 50}
		for range 2 {
			c := f.call()
			c.ID = idAt(time.UnixMicro(f.now.Load()).Add(-3*time.Hour), int(f.seq.Load()))
			_, err := f.Settle(ctx, &Hold{ID: c.HoldID(), Call: c}, Settlement{
				Actual: cost(70), Split: split, Usage: pricing.Usage{Input: 4, Output: 5}, Estimated: true,
			})
			if !errors.Is(err, ErrTooOld) {
				t.Fatal(err)
			}
		}
		list, err := f.Ledger.Reconcile(ctx, f.org, 10)
		if err != nil || len(list) != 2 {
			t.Fatal(list, err)
		}
		resolve := func(e ledger.Entry, charge bool, want error) {
			t.Helper()
			_, err := f.Resolve(ctx, e, ledger.Resolution{Charge: charge, By: "carla", Reason: "not in the books"}, limits)
			if !errors.Is(err, want) {
				t.Fatalf("resolve: %v, want %v", err, want)
			}
		}
		resolve(ledger.Entry{Call: list[0].Call}, true, ledger.ErrNotListed)
		resolve(list[0], true, nil)
		resolve(list[0], true, nil) // again
		resolve(list[0], false, ledger.ErrConflict)
		resolve(list[1], false, nil)
		f.used(ctx, limits, [2]int64{70, 0})
		entries, sums, audit := f.books(ctx)
		want := ledger.Sums{Cost: 70, Calls: 1, Input: 4, Output: 5, Split: split, Estimated: 70}
		if len(entries) != 1 || entries[0].Kind != ledger.KindCharge || entries[0].ID != list[0].ID || sums != want {
			t.Errorf("%+v, %+v", entries, sums)
		}
		if len(audit) != 2 || audit[0].Action != "usage.reconcile.charge" || audit[1].Action != "usage.reconcile.drop" {
			t.Errorf("audit %+v", audit)
		}
		if left, err := f.Ledger.Reconcile(ctx, f.org, 10); err != nil || len(left) != 0 {
			t.Errorf("left %v, %v", left, err)
		}
	})
}
