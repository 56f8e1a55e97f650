package guard

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/budget"
)

// TestRefusedSeriesAreBounded: orgs and causes beyond the bounds are counted as _other.
func TestRefusedSeriesAreBounded(t *testing.T) {
	r := newRefusedCalls(nil)
	for i := range 700 {
		r.count(fmt.Sprint("org", i), "limit:day")
	}
	for i := range 3000 {
		r.count("org0", budget.NewCause(budget.CauseBrake, fmt.Sprint("b", i)))
	}
	if n := testutil.CollectAndCount(r.calls); n > maxCauseSeries+maxOrgSeries+1 {
		t.Errorf("%d series", n)
	}
	if n := testutil.ToFloat64(r.calls.WithLabelValues(otherOrgs, "limit:day")); n != 200 {
		t.Errorf("%v calls of other orgs, want 200", n)
	}
}
