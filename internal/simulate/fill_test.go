package simulate

import (
	"slices"
	"testing"
	"time"

	"github.com/llmguard/llmguard/queue"
)

// TestFill: calls hold 100, cost 60, and the limit is 200 a minute. The third waits until the
// window has moved past the first two, which have been settled.
func TestFill(t *testing.T) {
	trace := traceOf(t, call("ann", 0), call("ann", 1), call("ann", 1.5), call("bob", 118))
	result, err := Run(t.Context(), trace, policyOf(t, queue.Pool{}, window("min", 200, time.Minute)), Options{Fill: true})
	if err != nil {
		t.Fatal(err)
	}
	report, err := result.Report(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Fill) != 1 || report.Fill[0].Org != "acme" || report.Fill[0].Limit != "min" {
		t.Fatalf("filled %+v", report.Fill)
	}
	share := report.Fill[0].Share // slots of half a second
	for slot, want := range map[int]float64{0: 0.5, 2: 1, 10: 0.6, 100: 0.6, 119: 0.6, 124: 0.5, 130: 0.3} {
		if share[slot] != want {
			t.Errorf("slot %d is filled to %g, want %g", slot, share[slot], want)
		}
	}
	if got := report.Fill[0].Fullest; got != 1 {
		t.Errorf("at most %g", got)
	}
	waiting := func(s Slot) bool { return s.Waiting != 0 }
	first := slices.IndexFunc(report.Timeline, waiting)
	for i, s := range report.Timeline {
		if want := i >= 2 && i <= 121; waiting(s) != want {
			t.Errorf("in slot %d %d wait; the first do in %d", i, s.Waiting, first)
		}
	}
	var bins []int
	for _, b := range report.Waits {
		bins = append(bins, b.Calls)
	}
	if !slices.Equal(bins, []int{0, 0, 1, 0, 0, 0}) {
		t.Errorf("waits %v", bins)
	}
	if plain, err := Run(t.Context(), trace, policyOf(t, queue.Pool{}), Options{}); err != nil || plain.fill != nil {
		t.Errorf("followed without being asked: %v", err)
	}
}
