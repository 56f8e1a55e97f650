package guard

import (
	"math/bits"
	"net/http"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
)

// The headers an answer tells its cost and limits in. Amounts are decimal
// USD, times are Go durations as in OpenAI's x-ratelimit-reset-*.
const (
	HeaderCall     = "X-Llmguard-Call-Id"
	HeaderHeld     = "X-Llmguard-Held-Usd"      // what is held: the most it can cost, unless the hold grows
	HeaderCost     = "X-Llmguard-Cost-Usd"      // what it cost; a trailer on streams
	HeaderEstimate = "X-Llmguard-Estimated"     // "true" when the cost is an estimate
	HeaderWithout  = "X-Llmguard-Without-Store" // "local" or "allow": the limits are not known, and charged later
	HeaderLimits   = "X-Llmguard-Limits"        // every limit: name;metric;limit;remaining;reset
	HeaderInstead  = "X-Llmguard-Downgraded"    // the model that was asked for, when a cheaper one served the call
	HeaderWaited   = "X-Llmguard-Waited-Ms"     // time in the queue
)

// tell adds our headers to an answer. The remaining amounts are those after
// this call's hold, corrected by its cost when that is known already.
func (c *Call) tell(h http.Header) {
	held := c.Hold.Max
	t := newHeaderWriter()
	t.text(HeaderCall, c.ID)
	t.usd(HeaderHeld, held.Cost)
	back := budget.Amounts{}
	if c.final() {
		t.usd(HeaderCost, c.Result.Cost)
		if c.Result.Estimated {
			t.text(HeaderEstimate, "true")
		}
		back.Cost = held.Cost - c.Result.Cost
		back.Tokens = held.Tokens - c.Result.Usage.Input - c.Result.Usage.Output
	}
	if c.Plan.instead != "" {
		t.text(HeaderInstead, c.Plan.instead)
	}
	if c.Waited > 0 {
		t.number(HeaderWaited, c.Waited.Milliseconds())
	}
	if c.Without != "" {
		t.text(HeaderWithout, string(c.Without))
	}
	t.limits(c.Hold.Statuses, c.Plan.Price, held.Cost, back)
	t.write(h)
}

// final reports whether the cost is known: not before a stream has ended.
func (c *Call) final() bool { return c.Result.Outcome != Unsent }

// trail sets the final cost as an HTTP trailer.
func (c *Call) trail(h http.Header) {
	h.Set(http.TrailerPrefix+HeaderCost, string(c.Result.Cost.AppendUSD(nil)))
	if c.Result.Estimated {
		h.Set(http.TrailerPrefix+HeaderEstimate, "true")
	}
}

// TellLimits writes the limits' state as our own header and as OpenAI's
// x-ratelimit-*. Where no limit counts requests or tokens, they are what the
// tightest money limit still buys: calls like this one, and output tokens of
// its model at the dearest rate. Back is what settling gave back since.
func TellLimits(h http.Header, statuses []budget.Status, price *pricing.Price, held pricing.Nano, back budget.Amounts) {
	t := newHeaderWriter()
	t.limits(statuses, price, held, back)
	t.write(h)
}

// perMillionOutput is the dearest price of a million output tokens.
func perMillionOutput(p *pricing.Price) pricing.Nano {
	n, err := p.Ceiling(pricing.Usage{Output: 1_000_000}, pricing.Terms{})
	if err != nil {
		return 0
	}
	return n
}

// scale is n*mul/div without overflow; arguments are not negative, div > 0.
func scale(n, mul, div int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(mul))
	if hi >= uint64(div) {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, uint64(div))
	return int64(min(q, 1<<63-1))
}
