package figures

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// Amounts below a cent have four digits; nothing is rounded to $0.
func TestUSD(t *testing.T) {
	for n, want := range map[int64]string{
		0: "$0", 1: "$0.000000001", 434_498: "$0.0004345", 1_857_506: "$0.001858", 2_000_000: "$0.002", -6_911_695: "-$0.006912",
		9_999_999: "$0.01", 77_700_000: "$0.0777", 1_234_000_000: "$1.23", 12_340: "$0.00001234",
		10_050_000: "$0.0101", 12_345_678: "$0.0123", 250_000_000: "$0.2500", 999_990_000: "$1.0000", -1_234_565_000_000: "-$1,234.57", 4_503_599_627_370_495: "$4,503,599.63",
	} {
		if got := USD(pricing.Nano(n)); got != want {
			t.Errorf("%d nano-USD: got %s, want %s", n, got, want)
		}
	}
}

func TestCountsAndDurations(t *testing.T) {
	at := time.Date(2026, 11, 1, 9, 30, 5, 0, time.FixedZone("CET", 3600))
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	winter := at.In(berlin)
	for got, want := range map[string]string{
		Count(999): "999", Count(-1_000): "-1,000", Count(1_234_567): "1,234,567",
		Compact(9_999): "9999", Compact(12_345): "12.3k", Compact(4_000_000): "4.0M",
		Share(1, 8): "12 %", Share(1, 1000): "< 1 %", Share(0, 8): "",
		Age(-time.Second): "0s", Age(119 * time.Minute): "1h", Age(47 * time.Hour): "47h", Age(49 * time.Hour): "2d",
		Span(-1): "0ms", Span(1540 * time.Millisecond): "1.5s", Span(303 * time.Second): "5m 3s",
		Span(59980 * time.Millisecond):   "1m",
		Span(47*time.Hour + time.Minute): "1d 23h", Span(55 * time.Hour): "2d 7h",
		Minute(at): "2026-11-01 08:30 UTC", Second(at): "2026-11-01 08:30:05 UTC", Clock(at): "08:30:05 UTC",
		Cell(Minute(at)): "2026-11-01 08:30", Cell("never"): "never", Month(at): "November 2026",
		Between(at, at.Add(time.Hour)):                   "from 2026-11-01 09:30 to 2026-11-01 10:30 CET",
		Between(at.UTC(), at.UTC().Add(time.Second)):     "from 2026-11-01 08:30:05 to 2026-11-01 08:30:06 UTC",
		Between(at.AddDate(0, -1, 0).In(berlin), winter): "from 2026-10-01 10:30 CEST to 2026-11-01 09:30 CET",
		Mark(at, time.Second, time.Minute):               "08:30:05", Mark(at, time.Hour, 5*time.Hour): "08:30",
		Mark(at, time.Hour, 72*time.Hour): "Nov 1 08:30", Mark(at, 24*time.Hour, 72*time.Hour): "Nov 1",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
