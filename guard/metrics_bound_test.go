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

// TestBoundMetrics: the worst hour of each org is reported, +Inf where nothing in USD bounds it,
// and beyond 500 orgs the others together.
func TestBoundMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	bounds := map[string]guard.Bound{
		"acme": {Hour: 2 * pricing.NanoPerUSD}, "open": {Hour: guard.Unlimited, None: true}, "tokens": {Hour: guard.Unlimited},
	}
	if err := guard.RegisterBounds(reg, func() map[string]guard.Bound { return bounds }); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP llmguard_guard_org_worst_hour_usd The most in USD that an org can spend in an hour of the clock by its limits of cost and the spend caps; +Inf: they do not bound it. Beyond 500 orgs by id, the others together are _other.
# TYPE llmguard_guard_org_worst_hour_usd gauge
llmguard_guard_org_worst_hour_usd{org="acme"} 2
llmguard_guard_org_worst_hour_usd{org="open"} +Inf
llmguard_guard_org_worst_hour_usd{org="tokens"} +Inf
# HELP llmguard_guard_unbounded_orgs Orgs with calls that no enforced limit of cost, tokens or requests and no spend cap bounds.
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
