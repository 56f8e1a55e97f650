package guard

import (
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/tokenizer"
)

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
