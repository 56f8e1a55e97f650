package admin

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/pricing"
)

// An approver is shown, and approves, exactly what was asked for.
func TestLimitRequestIsExact(t *testing.T) {
	for text, want := range map[string]string{"$12.345": "$12.345", "$12.34": "$12.34", "$0.000000001": "$0.000000001"} {
		n, err := pricing.ParseUSD(text)
		if err != nil {
			t.Fatal(err)
		}
		got := viewLimitRequest(&tenants.RaiseRequest{Amount: int64(n)}, time.Now()).Amount
		back, err := pricing.ParseUSD(got)
		if got != want || err != nil || back != n {
			t.Errorf("%s: got %s, which is %v, %v; want %s", text, got, back, err, want)
		}
	}
}
