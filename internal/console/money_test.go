package console

import (
	"testing"

	"github.com/llmguard/llmguard/pricing"
)

// Amounts below a cent have four digits; nothing is rounded to $0.
func TestMoneyOnPages(t *testing.T) {
	for n, want := range map[int64]string{
		0: "$0", 1: "$0.000000001", 434_498: "$0.0004345", 1_857_506: "$0.001858", 2_000_000: "$0.002", -6_911_695: "-$0.006912",
		9_999_999: "$0.01", 77_700_000: "$0.0777", 1_234_000_000: "$1.23", 12_340: "$0.00001234",
		10_050_000: "$0.0101", 12_345_678: "$0.0123", 250_000_000: "$0.2500", 999_990_000: "$1.0000", -1_234_565_000_000: "-$1,234.57", 4_503_599_627_370_495: "$4,503,599.63",
	} {
		if got := usd(pricing.Nano(n)); got != want {
			t.Errorf("%d nano-USD: got %s, want %s", n, got, want)
		}
	}
}
