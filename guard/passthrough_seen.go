package guard

import (
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/tokenizer"
)

// fastest is how many tokens a second no provider generates for one choice: twice
// what DefaultGrowStep counts with.
const fastest = 600

// bounded reports whether what shows of an answer bounds its bill. Reasoning and
// speech do not show, tools that the provider runs add input, and what is written to
// a cache for long costs more than input.
func (c *Call) bounded() bool {
	r := c.Plan.Request
	return !c.Plan.hidesOutput() && len(r.BuiltinTools) == 0 && !r.WebSearch && !r.LongCache
}

// chargeText charges a whole answer without usage by its text, or the hold where
// that does not bound the bill.
func (c *Call) chargeText(a wire.Answer, body []byte) {
	if c.Plan.Request.Endpoint == wire.Moderations { // whose answers cost nothing
		c.chargeEstimate(NoUsage, 0)
		return
	}
	c.Result.Model, c.Result.Tier = a.Model, a.ServiceTier
	g, ok := wire.ScanGenerated(c.Plan.Request.Endpoint, body)
	count := int64(tokenizer.Count(tokenizer.EncodingFor(c.Plan.Target.Model), g.Text))
	_, most := tokenizer.Multiplier(c.Plan.Target.Model)
	factor := int64(most)
	// Of a response all strings count, not only what was generated.
	if count > c.mostCount() && c.Plan.Request.Endpoint != wire.Responses {
		c.past = billedFor(count, factor)
	}
	if !ok || a.Hidden || g.Answers < c.Plan.Request.Answers() || !c.bounded() {
		c.chargeHold(NoUsage)
		return
	}
	// A token that ends each answer, and where two texts met may be one less.
	count += 2*g.Answers + (tokenizer.ToolCallOverhead+2)*g.Calls
	c.chargeEstimate(NoUsage, billedFor(count, factor))
}

// reached bounds what the provider of a stream that broke off has generated: what
// came, and what it may have generated since. What is added is within the hold.
func (r *relay) reached() int64 {
	came := r.visible()
	return max(came, min(came+r.call.generated(time.Since(r.seen)), r.call.held))
}

// billedFor is how many tokens a provider may bill for a count of ours, by the
// factor of its tokenizer in thousandths.
func billedFor(count, factor int64) int64 { return (count*factor + 999) / 1000 }
