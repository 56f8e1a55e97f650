package guard

import (
	"math/bits"
	"net/http"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/wire"
)

// The headers an answer tells its cost and limits in. Amounts are decimal
// USD, times are Go durations as in OpenAI's x-ratelimit-reset-*.
const (
	HeaderCall     = "X-Llmguard-Call-Id"
	HeaderHeld     = "X-Llmguard-Held-Usd"  // the most this call can cost
	HeaderCost     = "X-Llmguard-Cost-Usd"  // what it cost; a trailer on streams
	HeaderEstimate = "X-Llmguard-Estimated" // "true" when the cost is an estimate
	HeaderLimits   = "X-Llmguard-Limits"    // every limit: name;metric;limit;remaining;reset
	HeaderWaited   = "X-Llmguard-Waited-Ms" // time in the queue
)

// tell adds our headers to an answer. The remaining amounts are those after
// this call's hold, corrected by its cost when that is known already.
func (c *Call) tell(h http.Header) {
	h.Set(HeaderCall, c.ID)
	h.Set(HeaderHeld, usd(c.Max.Cost))
	back := budget.Amounts{}
	if c.final() {
		h.Set(HeaderCost, usd(c.Result.Cost))
		if c.Result.Estimated {
			h.Set(HeaderEstimate, "true")
		}
		back.Cost = c.Max.Cost - c.Result.Cost
		back.Tokens = c.Max.Tokens - c.Result.Usage.Input - c.Result.Usage.Output
	}
	if c.Waited > 0 {
		h.Set(HeaderWaited, strconv.FormatInt(c.Waited.Milliseconds(), 10))
	}
	TellLimits(h, c.Hold.Statuses, c.Price, c.Max.Cost, back)
}

// final reports whether the cost is known: not before a stream has ended.
func (c *Call) final() bool { return c.Result.Outcome != Unsent }

// trail sets the final cost as an HTTP trailer.
func (c *Call) trail(h http.Header) {
	h.Set(http.TrailerPrefix+HeaderCost, usd(c.Result.Cost))
	if c.Result.Estimated {
		h.Set(http.TrailerPrefix+HeaderEstimate, "true")
	}
}

// TellLimits writes the limits' state as our own header and as OpenAI's
// x-ratelimit-*. Where no limit counts requests or tokens, they are what the
// tightest money limit still buys: calls like this one, and output tokens of
// its model at the dearest rate. Back is what settling gave back since.
func TellLimits(h http.Header, statuses []budget.Status, price *pricing.Price, held pricing.Nano, back budget.Amounts) {
	if len(statuses) == 0 {
		return
	}
	var line strings.Builder
	var cost, tokens, requests *budget.Status
	for i := range statuses {
		s := correct(statuses[i], back)
		if s.Mode != budget.Enforce {
			continue
		}
		appendLimit(&line, s)
		switch s.Metric {
		case budget.Cost:
			cost = tighter(cost, s)
		case budget.Tokens:
			tokens = tighter(tokens, s)
		case budget.Requests:
			requests = tighter(requests, s)
		}
	}
	if line.Len() > 0 {
		h.Set(HeaderLimits, line.String())
	}
	if tokens == nil && cost != nil {
		tokens = buys(cost, perMillionOutput(price), 1_000_000)
	}
	if requests == nil && cost != nil {
		requests = buys(cost, held, 1)
	}
	rateLimit(h, "Tokens", tokens)
	rateLimit(h, "Requests", requests)
}

func correct(s budget.Status, back budget.Amounts) *budget.Status {
	switch s.Metric {
	case budget.Cost:
		s.Remaining += int64(back.Cost)
	case budget.Tokens:
		s.Remaining += back.Tokens
	}
	s.Remaining = min(max(s.Remaining, 0), s.Amount)
	return &s
}

func tighter(a, b *budget.Status) *budget.Status {
	if a == nil || b.Remaining < a.Remaining {
		return b
	}
	return a
}

func appendLimit(b *strings.Builder, s *budget.Status) {
	if b.Len() > 0 {
		b.WriteString(", ")
	}
	b.WriteString(s.LimitID)
	b.WriteString(";metric=" + string(s.Metric))
	b.WriteString(";limit=" + quantity(s.Metric, s.Amount))
	b.WriteString(";remaining=" + quantity(s.Metric, s.Remaining))
	b.WriteString(";reset=" + wire.FormatReset(s.Reset))
}

func quantity(m budget.Metric, n int64) string {
	if m == budget.Cost {
		return usd(pricing.Nano(n))
	}
	return strconv.FormatInt(n, 10)
}

// usd prints an amount without the currency sign.
func usd(n pricing.Nano) string { return strings.TrimPrefix(n.String(), "$") }

// perMillionOutput is the dearest price of a million output tokens.
func perMillionOutput(p *pricing.Price) pricing.Nano {
	n, err := p.Ceiling(pricing.Usage{Output: 1_000_000}, pricing.Terms{})
	if err != nil {
		return 0
	}
	return n
}

// buys converts a money limit into units of which `per` cost `unit`.
func buys(s *budget.Status, unit pricing.Nano, per int64) *budget.Status {
	if unit <= 0 {
		return nil
	}
	out := *s
	out.Amount, out.Remaining = scale(s.Amount, per, int64(unit)), scale(s.Remaining, per, int64(unit))
	return &out
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

func rateLimit(h http.Header, what string, s *budget.Status) {
	if s == nil {
		return
	}
	h.Set("X-Ratelimit-Limit-"+what, strconv.FormatInt(s.Amount, 10))
	h.Set("X-Ratelimit-Remaining-"+what, strconv.FormatInt(s.Remaining, 10))
	h.Set("X-Ratelimit-Reset-"+what, wire.FormatReset(s.Reset))
}
