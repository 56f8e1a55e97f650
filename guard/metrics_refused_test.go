package guard

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/budget"
)

// TestRefusedSeriesAreBounded: causes beyond the bound are counted as _other. Many limits and brakes leave series for
// stops, pools and providers.
func TestRefusedSeriesAreBounded(t *testing.T) {
	r := newRefusedCalls(nil)
	const orgs = 500
	for i := range 3000 {
		r.count(fmt.Sprint("org", i%orgs), budget.NewCause(budget.CauseBrake, fmt.Sprint("b", i)))
	}
	if n := testutil.CollectAndCount(r.calls); n != maxRuleSeries+orgs {
		t.Errorf("%d series, want %d and other causes of %d orgs", n, maxRuleSeries, orgs)
	}
	for i := range 3000 {
		r.count("org0", budget.NewCause(budget.CauseProvider, fmt.Sprint("p", i)))
	}
	if n := testutil.ToFloat64(r.calls.WithLabelValues("org0", "provider:p0")); n != 1 {
		t.Errorf("%v calls refused by the first provider, want 1", n)
	}
	if n := testutil.CollectAndCount(r.calls); n != maxCauseSeries+orgs {
		t.Errorf("%d series, want %d and other causes of %d orgs", n, maxCauseSeries, orgs)
	}
}
