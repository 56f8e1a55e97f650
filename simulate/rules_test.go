package simulate_test

import (
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/simulate"
)

// nothingKnown is a policy that skips every call.
func nothingKnown() simulate.Policy {
	return simulate.Policy{Name: "none", Guard: &guard.Policy{}}
}
