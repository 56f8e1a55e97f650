package guard

import (
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/tokenizer"
)

// fastest is how many tokens a second no provider generates for one choice: twice
// what DefaultGrowStep counts with.
const fastest = 600

// chargeText charges a whole answer without usage by its text, or the hold where
// that does not bound the bill.
func (b *bill) chargeText(a wire.Answer, body []byte) {
	if b.plan.Request.Endpoint == wire.Moderations { // whose answers cost nothing
		b.chargeEstimate(NoUsage, 0)
		return
	}
	b.result.Model, b.result.Tier = a.Model, a.ServiceTier
	g, ok := wire.ScanGenerated(b.plan.Request.Endpoint, body)
	count := int64(tokenizer.Count(tokenizer.EncodingFor(b.plan.Target.Model), g.Text))
	_, most := tokenizer.Multiplier(b.plan.Target.Model)
	factor := int64(most)
	// Of a response all strings count, not only what was generated.
	if count > b.mostCount() && b.plan.Request.Endpoint != wire.Responses {
		b.past = billedFor(count, factor)
	}
	if !ok || a.Hidden || g.Answers < b.plan.Request.Answers() || !b.bounded() {
		b.chargeHold(NoUsage)
		return
	}
	// A token that ends each answer, and where two texts met may be one less.
	count += 2*g.Answers + (tokenizer.ToolCallOverhead+2)*g.Calls
	b.chargeEstimate(NoUsage, billedFor(count, factor))
}

// reached bounds what the provider of a stream that broke off has generated: what
// came, and what it may have generated since. What is added is within the hold.
func (r *relay) reached() int64 {
	came := r.visible()
	return max(came, min(came+r.call.generated(time.Since(r.seen)), r.call.bill.held))
}

// billedFor is how many tokens a provider may bill for a count of ours, by the
// factor of its tokenizer in thousandths.
func billedFor(count, factor int64) int64 { return (count*factor + 999) / 1000 }
