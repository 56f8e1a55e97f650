package guard

import (
	"net/http"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
)

// TestTellsNoEndlessReset checks that a limit that never resets has no reset in the
// headers.
func TestTellsNoEndlessReset(t *testing.T) {
	h := http.Header{}
	TellLimits(h, &LimitReport{Price: &pricing.Price{}, Statuses: []budget.Status{{
		LimitID: "stock", Metric: budget.Tokens, Mode: budget.Enforce, Amount: 100, Remaining: 40, Reset: budget.Endless,
	}}})
	if got := h.Get(HeaderLimits); !strings.Contains(got, "remaining=40") || strings.Contains(got, "reset=") {
		t.Errorf("limits %q", got)
	}
	if got := h.Values("X-Ratelimit-Reset-Tokens"); got != nil || h.Get("X-Ratelimit-Remaining-Tokens") != "40" {
		t.Errorf("headers %v", h)
	}
}
