package finance

import (
	"fmt"
	"testing"
	"time"
)

func TestDue(t *testing.T) {
	for name, tc := range map[string]struct{ every, done, now, want string }{
		"first day":                    {"day", "", "2026-11-27T15:00:00Z", "[2026-11] 2026-11-26"},
		"again on that day":            {"day", "2026-11-26", "2026-11-27T23:59:00Z", "[] 2026-11-26"},
		"too early":                    {"day", "2026-11-26", "2026-11-28T00:01:00Z", "[] 2026-11-26"},
		"the next day":                 {"day", "2026-11-26", "2026-11-28T00:02:00Z", "[2026-11] 2026-11-27"},
		"the last day of a month":      {"day", "2026-11-29", "2026-12-01T00:03:00Z", "[2026-11] 2026-11-30"},
		"the first of a month":         {"day", "2026-11-30", "2026-12-02T00:03:00Z", "[2026-12] 2026-12-01"},
		"after an outage":              {"day", "2026-10-30", "2026-12-02T00:03:00Z", "[2026-10 2026-11 2026-12] 2026-12-01"},
		"first month":                  {"month", "", "2026-11-27T15:00:00Z", "[2026-10] 2026-10-31"},
		"again in that month":          {"month", "2026-10-31", "2026-11-30T23:59:00Z", "[] 2026-10-31"},
		"the next month":               {"month", "2026-10-31", "2026-12-01T00:02:00Z", "[2026-11] 2026-11-30"},
		"the next month in a far zone": {"month", "2026-10-31", "2026-12-01T10:00:00+14:00", "[] 2026-10-31"},
		"months after an outage":       {"month", "2026-08-31", "2026-12-01T00:02:00Z", "[2026-09 2026-10 2026-11] 2026-11-30"},
		"by day, then by month":        {"month", "2026-11-20", "2026-11-27T15:00:00Z", "[] 2026-11-20"},
		"by month, then by day":        {"day", "2026-10-31", "2026-11-27T15:00:00Z", "[2026-11] 2026-11-26"},
		"another position":             {"day", "0-0", "2026-11-27T15:00:00Z", "[2026-11] 2026-11-26"},
	} {
		now, err := time.Parse(time.RFC3339, tc.now)
		if err != nil {
			t.Fatal(err)
		}
		months, position := Due(tc.every, tc.done, now)
		if got := fmt.Sprint(months, " ", position); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
	if months, _ := Due("day", "2020-01-01", time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)); len(months) != 14 {
		t.Errorf("after years: got %d months, want those that have daily sums", len(months))
	}
}
