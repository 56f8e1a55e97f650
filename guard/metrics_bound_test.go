package guard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/pricing"
)

// TestBoundMetrics checks that the worst hour of each org is reported, as +Inf if nothing
// in USD bounds it, and that orgs beyond 500 are summed up.
func TestBoundMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	bounds := map[string]guard.Bound{
		"acme": {Hour: 2 * pricing.NanoPerUSD}, "open": {Hour: guard.Unlimited, None: true}, "tokens": {Hour: guard.Unlimited},
	}
	if err := guard.RegisterBounds(reg, func() map[string]guard.Bound { return bounds }); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP llmguard_guard_org_worst_hour_usd Maximum in USD that an org can spend in one clock hour under its cost limits and the spend caps; +Inf without a bound. Beyond 500 orgs, sorted by id, the rest is summed up as _other.
# TYPE llmguard_guard_org_worst_hour_usd gauge
llmguard_guard_org_worst_hour_usd{org="acme"} 2
llmguard_guard_org_worst_hour_usd{org="open"} +Inf
llmguard_guard_org_worst_hour_usd{org="tokens"} +Inf
# HELP llmguard_guard_unbounded_orgs Orgs with calls that no enforced limit on cost, tokens or requests and no spend cap bounds.
# TYPE llmguard_guard_unbounded_orgs gauge
llmguard_guard_unbounded_orgs 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	for i := range 520 {
		bounds[fmt.Sprintf("z%03d", i)] = guard.Bound{Hour: pricing.NanoPerUSD}
	}
	if n := testutil.CollectAndCount(reg, "llmguard_guard_org_worst_hour_usd"); n != 501 {
		t.Errorf("got %d series of 523 orgs, want 501", n)
	}
}
