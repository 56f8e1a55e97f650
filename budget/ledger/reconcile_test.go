package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// ledgerOf returns a reader of the given entries.
func ledgerOf(list ...ledger.Entry) ledger.ReadEntries {
	return func(_ context.Context, _ string, from, to time.Time, fn func(ledger.Entry) error) error {
		for _, e := range list {
			if e.At.Before(from) || !to.IsZero() && !e.At.Before(to) {
				continue
			}
			switch err := fn(e); {
			case errors.Is(err, ledger.ErrEnough):
				return nil
			case err != nil:
				return err
			}
		}
		return nil
	}
}

func entryOf(id string, attempt int, at time.Time, kind string, total pricing.Nano) ledger.Entry {
	e := ledger.Entry{Kind: kind, At: at, Total: total}
	e.ID, e.Attempt = id, attempt
	return e
}

// TestLateChargeOfABookedCallIsRefused: a charge on the reconciliation list is joined with the last
// entry of its own attempt, and is not booked if there is one.
func TestLateChargeOfABookedCallIsRefused(t *testing.T) {
	made := time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)
	list := []ledger.Entry{entryOf("a", 0, made, "late", 5), entryOf("a", 1, made, "late", 7), entryOf("b", 0, made, "late", 9)}
	read := ledgerOf(
		entryOf("a", 1, made.Add(time.Hour), ledger.KindExpire, 3),
		entryOf("a", 1, made.Add(2*time.Hour), ledger.KindLate, 4),
		entryOf("b", 0, made.Add(-time.Hour), ledger.KindSettle, 1), // before the call was made
	)
	joined, err := ledger.JoinLedger(t.Context(), read, "acme", list, func(string) (time.Time, bool) { return made, true })
	if err != nil {
		t.Fatal(err)
	}
	first, second := 0, 1
	for _, c := range []struct {
		call    string
		attempt *int
		booked  bool
	}{{"a", &first, false}, {"a", &second, true}, {"b", nil, false}} {
		u, err := ledger.FindUnresolved(joined, c.call, c.attempt)
		if err != nil {
			t.Fatal(err)
		}
		if err := u.CheckCharge(); errors.Is(err, ledger.ErrBooked) != c.booked {
			t.Errorf("call %s attempt %d: %v, booked %v", c.call, u.Attempt, err, u.Booked)
		}
	}
	if u := joined[1]; *u.Booked != (ledger.Booked{Kind: ledger.KindLate, Total: 4}) {
		t.Errorf("booked %v, want the last entry", *u.Booked)
	}
	var several *ledger.AttemptsError
	if _, err := ledger.FindUnresolved(joined, "a", nil); !errors.As(err, &several) || several.Attempts != 2 {
		t.Errorf("two attempts, none named: %v", err)
	}
	if _, err := ledger.FindUnresolved(joined, "c", nil); !errors.Is(err, ledger.ErrNotListed) {
		t.Errorf("a call that is not listed: %v", err)
	}
}

// TestCorrectionFindsItsCall: the call of a correction is found by its id, however late it settled.
func TestCorrectionFindsItsCall(t *testing.T) {
	made := time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)
	late := entryOf("a", 0, made.AddDate(0, 0, 3), ledger.KindSettle, 3)
	late.User = "alice"
	read := ledgerOf(entryOf("b", 0, made, ledger.KindSettle, 1), late)
	call, found, err := ledger.FindCall(t.Context(), read, "acme", "a", made)
	if err != nil || !found || call.User != "alice" {
		t.Errorf("got %v, %v, %v", call, found, err)
	}
	if _, found, err := ledger.FindCall(t.Context(), read, "acme", "c", made); err != nil || found {
		t.Errorf("a call that the ledger does not have: %v, %v", found, err)
	}
}

// TestClassesAddUpToTheCost: the split by class of tokens adds up to the cost and the tokens
// exactly.
func TestClassesAddUpToTheCost(t *testing.T) {
	s := ledger.Sums{
		Cost: 100, Input: 50, Cached: 10, Written: 5, Output: 20, Adjusted: -7,
		Split: pricing.Split{Input: 30, CachedInput: 3, CacheWrite: 4, Output: 40, Fees: 2},
	}
	var sum ledger.Sums
	for _, part := range s.ByClass() {
		sum.Add(part.Sums)
	}
	if sum.Cost != s.Cost || sum.Input != s.Input || sum.Output != s.Output {
		t.Errorf("the classes %v add up to %v", s.ByClass(), sum)
	}
}
