package finance

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// TestPartsOfCorrections: what takes back a charge of an earlier month is a correction; what the
// call cost, and what takes back a charge of the same month, is not.
func TestPartsOfCorrections(t *testing.T) {
	month, err := ParseMonth("2026-11")
	if err != nil {
		t.Fatal(err)
	}
	// The ids begin with the milliseconds of 2026-10-31 and 2026-11-02, in base 32.
	const old, fresh = "01m6a31yc0xxxxxxxxxxxxxxxx", "01m6crwh00xxxxxxxxxxxxxxxx"
	costs := ledger.Costs{Output: 30}
	entry := func(kind, id string, cost, total pricing.Nano) ledger.Entry {
		e := ledger.Entry{Call: ledger.Call{ID: id}, Kind: kind, Cost: cost, Total: total}
		if total > 0 && kind == ledger.KindLate {
			e.Costs = costs
		}
		return e
	}
	for _, one := range []struct {
		name           string
		entries        []ledger.Entry
		usage, earlier pricing.Nano
		calls          int64
	}{
		{"a settle", []ledger.Entry{entry("settle", old, 30, 30)}, 30, 0, 1},
		{"a late settle of last month's expired hold", []ledger.Entry{entry("late", old, -70, 30)}, 30, -100, 0},
		{"a late settle of this month's", []ledger.Entry{entry("expire", old, 100, 100), entry("late", old, -70, 30)}, 30, 0, 1},
		{"a late settle of a lost hold", []ledger.Entry{entry("late", old, 30, 30)}, 30, 0, 1},
		{"a void of last month's", []ledger.Entry{entry("void", old, -100, 0)}, 0, -100, -1},
		{"a void of this month's call", []ledger.Entry{entry("void", fresh, -100, 0)}, -100, 0, -1},
		{"a charge of last month's call", []ledger.Entry{entry("charge", old, 40, 40)}, 0, 40, 1},
		{"a charge of this month's call", []ledger.Entry{entry("charge", fresh, 40, 40)}, 40, 0, 1},
	} {
		r := &reader{books: &Books{Month: month}, expired: map[string]bool{}}
		var usage, earlier pricing.Nano
		var calls int64
		for _, e := range one.entries {
			for line, s := range r.partsOf(e, time.Time{}) {
				calls += s.Calls
				if line.Earlier {
					earlier += s.Cost
				} else {
					usage += s.Cost
				}
			}
		}
		if usage != one.usage || earlier != one.earlier || calls != one.calls {
			t.Errorf("%s: got %d of this month, %d of earlier ones and %d calls, want %d, %d and %d", one.name, usage, earlier,
				calls, one.usage, one.earlier, one.calls)
		}
	}
}

// TestDivided: prices are rounded to the nearest, also where the product exceeds 64 bits.
func TestDivided(t *testing.T) {
	for _, one := range [][4]int64{
		{1, 1, 2, 1},
		{-1, 1, 2, -1},
		{1, 1, 3, 0},
		{2, 1, 3, 1},
		{150, million, 1000, 150_000},
		{9_000_000_000_000_000, million, 60_000_000_000_000, 150_000_000},
	} {
		if got := divided(one[0], one[1], one[2]); got != one[3] {
			t.Errorf("%d*%d/%d: got %d, want %d", one[0], one[1], one[2], got, one[3])
		}
	}
}

// TestDays: consecutive days are a range.
func TestDays(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	got := Days([]time.Time{day(1), day(2), day(3), day(7)})
	if want := "2026-11-01 to 2026-11-03, 2026-11-07"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
