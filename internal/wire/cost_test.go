package wire

import (
	"fmt"
	"strings"
	"testing"
)

// TestCost reads the costs that vendors report, in nano-USD and rounded up; implausible costs are
// ignored.
func TestCost(t *testing.T) {
	for usage, want := range map[string]int64{
		`"cost":0.95`:         950_000_000,
		`"cost":"0.95"`:       950_000_000,
		`"cost":1.5e-05`:      15_000,
		`"cost":0.0000000001`: 1, `"cost":0.0000000011`: 2, `"cost":1e-300`: 1,
		`"cost":3`: 3_000_000_000, `"cost":0`: 0, `"cost":0e99`: 0, `"cost":null`: 0, `"cost":-1`: 0, `"cost":1e300`: 0, `"cost":1000001`: 0,
		`"cost":true`: 0, `"cost":"-"`: 0, `"cost":"1x"`: 0, `"cost":[1]`: 0, `"cost":""`: 0, `"cost":"01"`: 0,
		`"cost":{"request_cost":9,"total_cost":0.5}`: 500_000_000, `"cost":{}`: 0,
		`"estimated_cost":0.25`: 250_000_000,
		`"cost_in_usd_ticks":9`: 1, `"cost_in_usd_ticks":10000000000`: 1_000_000_000,
		`"cost":0.1,"is_byok":false,"cost_details":{"upstream_inference_cost":0.2}`: 100_000_000,
		`"cost":0.1,"is_byok":true,"cost_details":{"upstream_inference_cost":0.2}`:  300_000_000,
		`"cost":0.1,"is_byok":true,"cost_details":null`:                             100_000_000,
		`"cost_details":7`: 0,
	} {
		answer := fmt.Sprintf(`{"usage":{"prompt_tokens":1,%s,"completion_tokens":2}}`, usage)
		a, ok := ParseUsage(ChatCompletions, []byte(answer))
		if !ok || a.Fault != "" || max(a.Cost, a.CostUSD) != want || (a.CostUSD > 0) != strings.Contains(usage, "usd_ticks") && want > 0 || a.Usage.Output != 2 {
			t.Errorf("%s: got %d, fault %q, want %d", usage, a.Cost, a.Fault, want)
		}
	}
}
