package cli

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/admin"
)

func TestUsagePeriods(t *testing.T) {
	now := time.Date(2026, 11, 20, 15, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		p        period
		from, to string // first and last day
	}{
		{period{}, "2026-11-20", "2026-11-21"},
		{period{count: 7}, "2026-11-14", "2026-11-21"},
		{period{from: "today"}, "2026-11-20", "2026-11-21"},
		{period{from: "yesterday", to: "yesterday"}, "2026-11-19", "2026-11-20"},
		{period{from: "2026-10", to: "2026-10"}, "2026-10-01", "2026-11-01"},
		{period{from: "2026-10-05", to: "2026-10-06"}, "2026-10-05", "2026-10-07"},
		{period{to: "2026-10-31", count: 2}, "2026-10-30", "2026-11-01"},
		{period{from: "16h"}, "2026-11-19", "2026-11-21"},
		{period{from: "30d", to: "29d"}, "2026-10-21", "2026-10-23"},
		{period{from: "2026-11-19T23:00:00-02:00"}, "2026-11-20", "2026-11-21"},
	} {
		from, to, err := test.p.days(now)
		if err != nil || from.Format(time.DateOnly) != test.from || to.Format(time.DateOnly) != test.to {
			t.Errorf("%+v: %s to %s, %v, want %s to %s", test.p, from, to, err, test.from, test.to)
		}
	}
}

// TestLimitsThatNeverEmpty: an unlimited time prints as "never", without overflow.
func TestLimitsThatNeverEmpty(t *testing.T) {
	used, long, soon := int64(5), math.MaxInt64/1e9, 90.0
	var out strings.Builder
	err := limitTable(&out, []admin.Limit{
		{Name: "stock", Subject: "org", Used: &used},
		{Name: "older", Subject: "org", Used: &used, Reset: &long}, // from an older server that sent the maximum
		{Name: "minute", Subject: "org", Used: &used, Reset: &soon},
		{Name: "each", Subject: "user"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := tableOf(&out, []admin.Cap{{Name: "all", Unit: "nano_usd"}}, nil); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "never") != 3 || !strings.Contains(got, "1m 30s") || strings.Contains(got, "2562047h") || strings.Contains(got, "-2562047h") {
		t.Error(got)
	}
}
