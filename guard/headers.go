package guard

import (
	"math/bits"
	"net/http"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
)

// The headers that report an answer's cost and limits. Amounts are decimal USD, times are
// Go durations as in OpenAI's x-ratelimit-reset-*.
const (
	HeaderCall     = "X-Llmguard-Call-Id"
	HeaderHeld     = "X-Llmguard-Held-Usd"      // what is held: the most it can cost, unless the hold grows
	HeaderCost     = "X-Llmguard-Cost-Usd"      // what it cost; a trailer on streams
	HeaderEstimate = "X-Llmguard-Estimated"     // "true" if the cost is an estimate
	HeaderWithout  = "X-Llmguard-Without-Store" // "local" or "allow": the limits are not known, and charged later
	HeaderLimits   = "X-Llmguard-Limits"        // every limit: name;metric;limit;remaining;reset
	HeaderInstead  = "X-Llmguard-Downgraded"    // the requested model, if a cheaper one served the call
	HeaderWaited   = "X-Llmguard-Waited-Ms"     // time in the queue
)

// tell adds our headers to an answer. Remaining amounts are those after this call's hold,
// corrected by its cost if that is already known.
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
	if c.Cache != "" {
		t.text(HeaderCache, c.Cache)
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

// final reports whether the cost is known. For a stream that is only after its end.
func (c *Call) final() bool { return c.Result.Outcome != Unsent }

// trail sets the final cost as an HTTP trailer.
func (c *Call) trail(h http.Header) {
	h.Set(http.TrailerPrefix+HeaderCost, string(c.Result.Cost.AppendUSD(nil)))
	if c.Result.Estimated {
		h.Set(http.TrailerPrefix+HeaderEstimate, "true")
	}
}

// TellLimits writes the limits' state as our own header and as OpenAI's x-ratelimit-*. If
// no limit counts requests or tokens, those headers are derived from the tightest cost
// limit: how many calls like this one, and how many output tokens at the model's highest
// rate, it still covers. back is what settling has returned since.
func TellLimits(h http.Header, statuses []budget.Status, price *pricing.Price, held pricing.Nano, back budget.Amounts) {
	t := newHeaderWriter()
	t.limits(statuses, price, held, back)
	t.write(h)
}

// perMillionOutput returns the highest price of a million output tokens.
func perMillionOutput(p *pricing.Price) pricing.Nano {
	n, err := p.Ceiling(pricing.Usage{Output: 1_000_000}, pricing.Terms{})
	if err != nil {
		return 0
	}
	return n
}

// scale returns n*mul/div without overflow. Arguments must not be negative, and div must be
// > 0.
func scale(n, mul, div int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(mul))
	if hi >= uint64(div) {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, uint64(div))
	return int64(min(q, 1<<63-1))
}
