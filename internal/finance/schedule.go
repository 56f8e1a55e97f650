package finance

import (
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Due returns the months whose files are to be written, and the last day that they then cover, as a
// position; none if that was done. every is "day" or "month", done the position of the last time, empty
// for never.
func Due(every, done string, now time.Time) (months []Month, position string) {
	end := now.Add(-2 * settling).UTC() // everything is booked by then
	last := time.Date(end.Year(), end.Month(), end.Day(), 0, 0, 0, 0, time.UTC).AddDate(0, 0, -1)
	if every == "month" {
		last = MonthOf(last.AddDate(0, 0, 1)).Begin().AddDate(0, 0, -1)
	}
	first := last
	if before, err := time.Parse(time.DateOnly, done); err == nil {
		first = before.AddDate(0, 0, 1)
	}
	if oldest := last.AddDate(0, 0, -ledger.MostDays); first.Before(oldest) {
		first = oldest
	}
	if first.After(last) {
		return nil, done
	}
	for m := MonthOf(first); !m.Begin().After(last); m = (Month{m.End()}) {
		months = append(months, m)
	}
	return months, last.Format(time.DateOnly)
}
