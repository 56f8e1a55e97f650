package guard

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/budget"
)

// TestRefusedSeriesAreBounded: causes beyond the bound are counted as _other.
func TestRefusedSeriesAreBounded(t *testing.T) {
	r := newRefusedCalls(nil)
	for i := range 3000 {
		r.count("org0", budget.NewCause(budget.CauseBrake, fmt.Sprint("b", i)))
	}
	if n := testutil.CollectAndCount(r.calls); n > maxCauseSeries+1 {
		t.Errorf("%d series", n)
	}
	if n := testutil.ToFloat64(r.calls.WithLabelValues("org0", otherCause)); n != 3000-maxCauseSeries {
		t.Errorf("%v calls with other causes, want the rest", n)
	}
}
