package guard

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/tokenizer"
)

// bill computes a call's result from what its provider reported or, without that, from what
// was seen of the answer and from the hold.
type bill struct {
	plan        *Plan
	hold        *budget.Hold
	result      *Result // of the call
	policy      *atomic.Pointer[Policy]
	calibration *calibration.Calibration

	held      int64        // tokens of output that the hold covers
	told      int64        // nano-USD that the answer's headers report as its cost
	drawnMost pricing.Nano // cost of pictures whose usage was not believed

	several bool // the answer consists of several passes

	past int64 // tokens of output seen, if that exceeds the most that could be held
}

// allZero is the fault of a usage that counts nothing.
const allZero = "usage is all zero"

// faultOf returns why an answer's usage cannot be billed, or "". Some servers report zeros
// for values they did not count.
func (b *bill) faultOf(a wire.Answer) string {
	if a.Fault == "" && a.HasUsage && a.Usage.Input == 0 && a.Usage.Output == 0 && a.Usage.AudioMillis == 0 &&
		(a.Usage.SearchUnits == 0 || b.plan.units.most == 0) && !b.plan.free && b.plan.Input > 0 {
		return allZero
	}
	if a.Hidden && b.plan.Price.Provider == "google" { // its thinking tokens, which are billed as output
		return ""
	}
	return a.Fault
}

// charge sets the result from the provider's usage, as far as it agrees with what was sent and seen.
// It is an estimate if it is known to have other faults.
func (b *bill) charge(a wire.Answer, s shown, faults ...UsageFault) {
	faults = append(append(faults, b.check(&a.Usage, s)...), b.checkDrawn(&a)...)
	faults = append(faults, b.checkSteps(a.Steps)...)
	if a.Unknown != "" {
		faults = append(faults, UnknownCount)
	}
	b.price(a)
	b.estimated(faults, a.Rounded)
}

// chargePart sets the result from the usage of an answer that broke off, and the output that may have
// followed it within the hold.
func (b *bill) chargePart(o Outcome, a wire.Answer, s shown, more int64) {
	faults := append(b.check(&a.Usage, s), b.checkDrawn(&a)...)
	a.Usage.Output = max(a.Usage.Output, min(a.Usage.Output+more, b.held))
	b.price(a)
	b.unseenPasses()
	b.result.Outcome = o
	b.estimated(faults, true)
}

// estimated marks a charge by usage as an estimate, bounded by the hold, if there are faults or a
// doubt. Any other is evidence for later estimates.
func (b *bill) estimated(faults []UsageFault, doubt bool) {
	r := b.result
	switch {
	case len(faults) > 0:
		r.UsageFaults = faults
		if r.Cost > b.hold.Max.Cost && slices.ContainsFunc(faults, UsageFault.high) {
			b.chargeHold(r.Outcome)
		}
		r.Fault = cmp.Or(r.Fault, "usage contradicts what was sent and seen: "+string(faults[0]))
	case !doubt:
		b.learn()
		return
	}
	r.Estimated = true
	b.within()
}

func (b *bill) price(a wire.Answer) {
	r := b.result
	r.Outcome = Completed
	r.Model, r.Tier = a.Model, a.ServiceTier
	r.identify(a.ID)
	if a.Region != "" {
		b.plan.terms.Region = a.Region
	}
	var split pricing.Split
	var err error
	b.several = len(a.Steps) > 0
	if b.several {
		r.Usage, split, err = b.priceSteps(a)
		r.Usage.Requests = 1
	} else {
		r.Usage = b.timed(a.Usage, a.TimedWrites)
		r.Usage.Requests = 1
		r.Usage.ToolCalls = max(r.Usage.ToolCalls, b.plan.searches())
		split, err = b.split(r.Usage, a.Model, a.ServiceTier)
	}
	if err != nil { // the catalogue does not know the tier: charge at least the hold
		b.chargeHold(Completed)
		r.Fault = err.Error()
		return
	}
	split.Fees += b.drawn(a.Drawn)
	r.Cost, r.Split = split.Total(), split
}

// timed returns a usage in which writes to a cache that do not say for how long are for as long as the request
// asks, which was held.
func (b *bill) timed(used wire.Usage, says bool) pricing.Usage {
	u := pricing.Usage(used)
	if b.plan.Request.LongCache && !says {
		u.CacheWrite, u.CacheWrite1h = 0, u.CacheWrite
	}
	return u
}

func (b *bill) settleTerms(tier string) pricing.Terms {
	t := b.plan.terms
	if tier != "" {
		t.ServiceTier = tier
	}
	return t
}

// chargeEstimate charges counted tokens, marked as estimated. It charges at most the hold
// unless more was seen.
func (b *bill) chargeEstimate(o Outcome, output int64) {
	r := b.result
	r.Outcome, r.Estimated = o, true
	u := b.plan.usage(max(min(output, b.plan.Output), b.past))
	// a provider that failed at the start has hardly read the documents or called a
	// tool
	if o == UpstreamError {
		u.Input, u.ToolCalls = u.Input-b.plan.unread, 0
	}
	r.Usage = cacheWritten(b.plan.Request, u)
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

// chargeHold charges the whole hold, or its equivalent for the model that answered, marked
// as estimated. It is used when nothing is known of the provider's work except what was
// seen.
func (b *bill) chargeHold(o Outcome) {
	r := b.result
	if b.past > 0 {
		b.chargeEstimate(o, b.past)
		if r.Cost >= b.hold.Max.Cost {
			return
		}
	}
	r.Outcome, r.Estimated = o, true
	r.Usage = cacheWritten(b.plan.Request, b.plan.usage(b.held))
	r.Cost, r.Split = b.hold.Max.Cost, pricing.Split{}
	r.Underpriced = nil // the hold is larger
	if other := b.priceOf(r.Model); other != nil {
		if split, err := other.Split(r.Usage, b.settleTerms(r.Tier)); err == nil && split.Total() > r.Cost {
			r.more(DearerModel, split.Total()-r.Cost)
			r.Cost, r.Split = split.Total(), split
		}
	}
}

// left charges a call that was cancelled, by its caller or because that one disconnected. It had shown `seen` tokens
// of output, and generated at most `most`. A call that is no stream may have been generated to its end.
func (b *bill) left(seen, most int64) {
	switch {
	case !b.plan.Request.Stream:
		b.chargeHold(ClientGone)
	case b.bounded():
		b.chargeEstimate(ClientGone, seen)
	case b.paced():
		b.chargeEstimate(ClientGone, most)
	default:
		b.chargeHold(ClientGone)
	}
}

// bounded reports whether the visible part of an answer bounds its bill. It does not if
// reasoning or speech may be hidden, or if the provider runs tools, which add input.
func (b *bill) bounded() bool { return !b.plan.hidesOutput() && b.paced() }

// paced reports whether the time that a call took bounds its bill, which includes output that is
// not visible. It does not if the provider runs tools, which add input, if a rejected prediction, which is not
// generated, counts as output, or if the call may consist of several passes.
func (b *bill) paced() bool {
	r := b.plan.Request
	return len(r.BuiltinTools) == 0 && !r.WebSearch && r.Prediction.IsZero() && len(b.plan.passes) == 0
}

// fastest is a rate in tokens a second that no provider reaches for one choice: twice the
// rate that DefaultGrowStep assumes.
const fastest = 600

// chargeText charges a whole answer without usage by its text, or by the hold if the text
// does not bound the bill.
func (b *bill) chargeText(a wire.Answer, body []byte) {
	if b.plan.Request.Endpoint.Traits().Free { // it has no output
		b.chargeEstimate(NoUsage, 0)
		return
	}
	b.result.Model, b.result.Tier = a.Model, a.ServiceTier
	g, ok := wire.ScanGenerated(b.plan.Request.Endpoint, body)
	count := int64(tokenizer.Count(tokenizer.EncodingFor(b.plan.Target.Model), g.Text))
	_, most := tokenizer.Multiplier(b.plan.Target.Model)
	factor := int64(most)
	if count > b.mostCount() && g.Exact {
		b.past = billedFor(count, factor)
	}
	if !ok || a.Hidden || g.Answers < b.plan.Request.Answers() || !b.bounded() {
		b.chargeHold(NoUsage)
		return
	}
	// Each answer has an end token, and merging two texts may have saved one.
	count += 2*g.Answers + (tokenizer.ToolCallOverhead+2)*g.Calls
	b.chargeEstimate(NoUsage, billedFor(count, factor))
}

// reached bounds what the provider of a broken stream has generated: what arrived, plus what it may
// have generated since, which is limited to the hold. If output may be hidden, that is what it may have
// generated in the whole time.
func (r *relay) reached() int64 {
	came, more := r.billed(r.tokens()-r.summary), r.errand.generated()
	if r.tells && !r.hidden && !r.seen.IsZero() {
		more = r.visible() + r.call.generated(time.Since(r.seen))
	}
	return max(came, min(more, r.call.bill.held))
}

// billedFor returns how many tokens a provider may bill for our count, given the factor of
// its tokenizer in thousandths.
func billedFor(count, factor int64) int64 { return (count*factor + 999) / 1000 }
