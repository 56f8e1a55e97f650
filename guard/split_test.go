package guard

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// TestSplitReachesTheLedger checks that every charge derived from tokens is split by class
// in the ledger, and that the daily totals have no remainder.
func TestSplitReachesTheLedger(t *testing.T) {
	r := newRig(t, roomy()...)
	before := time.Now()
	for _, directive := range []string{"output=7", "output=7 cached=-1"} {
		c, _, err := r.run(t.Context(), prompt("gpt-4o", "[fake: "+directive+"] and some more to read", `"max_tokens":100`))
		if err != nil {
			t.Fatal(err)
		}
		list := r.entries()
		e := list[len(list)-1]
		if pricing.Split(e.Costs) != c.Result.Split || c.Result.Split.Total() != e.Cost || e.Costs.Output == 0 || e.Costs.Input == 0 {
			t.Errorf("%s: charged %s as %+v, the ledger says %s, %+v", directive, c.Result.Cost, c.Result.Split, e.Cost, e.Costs)
		}
	}
	lines, err := r.store.Ledger.Rollups(t.Context(), "acme", before, time.Now().Add(time.Minute))
	if err != nil || len(lines) == 0 {
		t.Fatal(err)
	}
	var sums ledger.Sums
	for _, l := range lines {
		sums.Add(l.Sums)
	}
	if sums.Cost == 0 || sums.Unmetered() != 0 || sums.Calls != 2 {
		t.Errorf("the day says %+v", sums)
	}
}
