package ledger

import (
	"slices"

	"github.com/llmguard/llmguard/pricing"
)

// ClassSums is what was paid for one class of tokens, or for none: Cost, and the tokens of the
// class in Input, or in Output for the output class.
type ClassSums struct {
	Class string
	Sums
}

// ByClass splits sums by what was paid for; the costs of the parts add up to the total exactly.
// Parts with neither tokens nor cost are left out.
func (s Sums) ByClass() []ClassSums {
	part := func(class string, tokens int64, cost pricing.Nano) ClassSums {
		return ClassSums{class, Sums{Input: tokens, Cost: cost}}
	}
	all := []ClassSums{
		part("input", s.Input-s.Cached-s.Written, s.Split.Input),
		part("cached_input", s.Cached, s.Split.CachedInput),
		part("cache_write", s.Written, s.Split.CacheWrite),
		{"output", Sums{Output: s.Output, Cost: s.Split.Output}},
		part("fees", 0, s.Split.Fees),
		part("unmetered", 0, s.Unmetered()),
		part("adjusted", 0, s.Adjusted),
	}
	return slices.DeleteFunc(all, func(p ClassSums) bool { return p.Input == 0 && p.Output == 0 && p.Cost == 0 })
}
