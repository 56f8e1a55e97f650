package guard

import (
	"sync/atomic"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// bill makes a call's result from what its provider reported or, without that, from what was
// seen of the answer and from what is held.
type bill struct {
	plan        *Plan
	hold        *budget.Hold
	result      *Result // of the call
	policy      *atomic.Pointer[Policy]
	calibration *calibration.Calibration

	held int64 // tokens of output the hold covers
	told int64 // nano-USD that the answer's head says it cost
	past int64 // tokens of output that were seen, when that is more than was ever to be held
}

// faultOf says why an answer's usage cannot be billed, or nothing. Some servers
// report zeros for what they did not count.
func (b *bill) faultOf(a wire.Answer) string {
	if a.Fault == "" && a.HasUsage && a.Usage.Input == 0 && a.Usage.Output == 0 && a.Usage.AudioMillis == 0 &&
		b.plan.Input > 0 {
		return "usage is all zero"
	}
	if a.Hidden && (b.plan.Target.Provider.Kind == providers.Gemini || b.plan.Price.Provider == "google") {
		return "" // its thoughts, which are billed as output
	}
	return a.Fault
}

// charge sets the result from the provider's usage, which must be without
// fault.
func (b *bill) charge(a wire.Answer) {
	r := b.result
	r.Outcome, r.Usage = Completed, pricing.Usage(a.Usage)
	r.Model, r.Tier = a.Model, a.ServiceTier
	r.Usage.Requests = 1
	r.Usage.ToolCalls = max(r.Usage.ToolCalls, b.plan.searches())
	if b.plan.Request.LongCache && !a.TimedWrites { // as was asked for, and held
		r.Usage.CacheWrite, r.Usage.CacheWrite1h = 0, r.Usage.CacheWrite
	}
	split, err := b.split(r.Usage, a.Model, a.ServiceTier)
	if err != nil { // a tier the catalogue does not know: never below the hold
		b.chargeHold(Completed)
		r.Fault = err.Error()
		return
	}
	r.Cost, r.Split = split.Total(), split
	b.learn()
}

func (b *bill) settleTerms(tier string) pricing.Terms {
	t := b.plan.terms
	if tier != "" {
		t.ServiceTier = tier
	}
	return t
}

// chargeEstimate charges counted tokens, marked estimated: what is held at most,
// unless more was seen.
func (b *bill) chargeEstimate(o Outcome, output int64) {
	r := b.result
	r.Outcome, r.Estimated = o, true
	r.Usage = b.plan.usage(max(min(output, b.plan.Output), b.past))
	if o == UpstreamError { // a provider that was lost at the start has hardly read the documents, or called a tool
		r.Usage.Input, r.Usage.ToolCalls = r.Usage.Input-b.plan.unread, 0
	}
	split, err := b.split(r.Usage, r.Model, r.Tier)
	r.Cost, r.Split = split.Total(), split
	bounded := b.past == 0 && len(r.Underpriced) == 0
	if err != nil || bounded && r.Cost > b.plan.Max.Cost {
		r.Cost, r.Split = b.plan.Max.Cost, pricing.Split{}
	}
	if b.past > 0 {
		r.more(OverLimit, r.Cost-b.plan.Max.Cost)
	}
}

// chargeHold charges the whole hold, or what it would be for the model that answered,
// marked estimated: nothing is known of what the provider did, but what was seen.
func (b *bill) chargeHold(o Outcome) {
	r := b.result
	if b.past > 0 {
		b.chargeEstimate(o, b.past)
		if r.Cost >= b.hold.Max.Cost {
			return
		}
	}
	r.Outcome, r.Estimated = o, true
	r.Usage = b.plan.usage(b.held)
	r.Cost, r.Split = b.hold.Max.Cost, pricing.Split{}
	r.Underpriced = nil // the hold is more
	if other := b.priceOf(r.Model); other != nil {
		if split, err := other.Split(r.Usage, b.settleTerms(r.Tier)); err == nil && split.Total() > r.Cost {
			r.more(DearerModel, split.Total()-r.Cost)
			r.Cost, r.Split = split.Total(), split
		}
	}
}

// left charges a call that was cancelled because its caller is gone, after
// output visible tokens. What a provider hides is not known: then the hold.
func (b *bill) left(output int64) {
	if b.plan.Request.Stream && b.bounded() {
		b.chargeEstimate(ClientGone, output)
		return
	}
	b.chargeHold(ClientGone)
}

// bounded reports whether what shows of an answer bounds its bill. Reasoning and
// speech do not show, tools that the provider runs add input, and what is written to
// a cache for long costs more than input.
func (b *bill) bounded() bool {
	r := b.plan.Request
	return !b.plan.hidesOutput() && len(r.BuiltinTools) == 0 && !r.WebSearch && !r.LongCache
}
