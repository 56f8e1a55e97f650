package guard

import (
	"cmp"
	"fmt"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/tokenizer"
)

// A provider's counts are believed as far as they agree with what was sent and with the text that was
// seen. Bytes are compared first, and text is counted only where they contradict. A count that
// contradicts is a fault: the call is charged by our own counts, within its hold, as an estimate.

// UsageFault is what is wrong with the usage of an answer. It is a metric label.
type UsageFault string

// The faults of a usage.
const (
	Malformed  UsageFault = "malformed"   // it cannot be read, or its parts exceed the whole
	LowInput   UsageFault = "low_input"   // fewer input tokens than the text that was sent
	HighInput  UsageFault = "high_input"  // more than what was sent, or than the model's context
	LowOutput  UsageFault = "low_output"  // fewer output tokens than the text of the answer
	HighOutput UsageFault = "high_output" // more than the text shows, or than the model can generate
	HighCalls  UsageFault = "high_calls"  // more calls of tools than any answer makes
	Outdated   UsageFault = "outdated"    // text followed it
	// UnknownCount is a count of tokens of a kind that is not known; it was charged as output.
	UnknownCount UsageFault = "unknown_count"
)

var usageFaults = []UsageFault{Malformed, LowInput, HighInput, LowOutput, HighOutput, HighCalls, Outdated, UnknownCount}

// high reports whether a count was too high.
func (f UsageFault) high() bool { return f == HighInput || f == HighOutput || f == HighCalls }

const (
	// tokenBytes is the length of text above which it is counted: most text has 3 to 7 bytes a token.
	tokenBytes = 6
	// addedInput is how many tokens a provider may add to what was sent, for example a chat template
	// with a system prompt of its own and the definitions of its tools.
	addedInput = 8192
	// mostCalls is how many searches and calls of other tools are believed, unless more are held.
	mostCalls = 256
)

// shown is the generated text of an answer.
type shown struct {
	bytes int64
	count func() int64 // its tokens; nil if no text is generated
}

// seenPlain returns the text of a whole answer, which is read only if its size or the output limit could
// contradict the usage.
func (b *bill) seenPlain(u wire.Usage, body []byte) shown {
	if int64(len(body)) <= tokenBytes*u.Output && u.Output <= b.plan.Output {
		return shown{bytes: int64(len(body))}
	}
	g, ok := wire.ScanWritten(b.plan.sent.Endpoint, body)
	if !ok {
		return shown{bytes: int64(len(body))}
	}
	return shown{bytes: int64(len(g)), count: func() int64 {
		return int64(tokenizer.Count(tokenizer.EncodingFor(b.plan.Target.Model), g))
	}}
}

// below reports whether a provider reports fewer tokens than any tokenizer makes of a text for which
// we count this many: four fifths with the public ones, half with others. A few do not matter
// unless none are reported.
func (b *bill) below(reported, count int64) bool {
	if count < few && reported > 0 {
		return false
	}
	most := 2*reported + few
	if _, factor := tokenizer.Multiplier(b.plan.Target.Model); factor == 1000 {
		most = reported + reported/4 + few
	}
	return count > most || reported == 0 && count > 2
}

// check corrects counts that contradict what was sent and seen, and returns why. Counts that are too
// high are kept: the hold bounds the charge.
func (b *bill) check(u *wire.Usage, s shown) (faults []UsageFault) {
	p := b.plan
	if b.plan.free {
		return nil
	}
	if p.units.most > 0 {
		return b.checkUnits(u)
	}
	switch {
	case b.below(u.Input, b.leastInput()):
		u.Input = max(u.Input, p.Input-p.unread)
		faults = append(faults, LowInput)
	case u.Input > b.mostInput():
		faults = append(faults, HighInput)
	}
	switch {
	case b.lowOutput(u.Output, s):
		u.Output = b.producedAtLeast(s.count())
		faults = append(faults, LowOutput)
	case u.Output > b.mostOutput(s.bytes):
		faults = append(faults, HighOutput)
	}
	if most := max(p.toolCalls(), mostCalls); u.ToolCalls > most {
		u.ToolCalls = most
		faults = append(faults, HighCalls)
	}
	return faults
}

// leastInput returns our count of the text that the provider must have read.
func (b *bill) leastInput() int64 {
	if context := b.plan.Price.Context; context > 0 {
		return min(b.plan.text.certain, context)
	}
	return b.plan.text.certain
}

// mostInput returns the most input tokens that the provider can have read: each byte of text is at
// most one token. Searches, tools and stored objects add as much as fits in the context, with every
// round.
func (b *bill) mostInput() int64 {
	p := b.plan
	if len(p.Request.BuiltinTools) > 0 || p.Request.WebSearch || p.searches() > 0 || p.unseen || p.kept.tokens > 0 {
		return max(cmp.Or(p.Price.Context, unknownContext), p.Input) * (1 + p.toolCalls())
	}
	most := p.Input + p.text.bytes + addedInput
	if p.Price.Context > 0 {
		most = min(most, max(p.Price.Context, p.Input))
	}
	return most
}

func (b *bill) lowOutput(reported int64, s shown) bool {
	switch {
	case s.count == nil || b.plan.Request.Echo: // its text includes the prompt
		return false
	case reported > 0 && s.bytes <= tokenBytes*reported+tokenBytes*few:
		return false
	}
	return b.below(reported, s.count())
}

// producedAtLeast returns the output to charge for a count of text: all that is held if there may be
// more that is not visible.
func (b *bill) producedAtLeast(count int64) int64 {
	_, factor := tokenizer.Multiplier(b.plan.Target.Model)
	n := billedFor(count, int64(factor))
	if b.bounded() {
		return n
	}
	return max(n, b.held)
}

// mostOutput returns the most output tokens that the provider can have generated. It may exceed the
// output limit by text that was seen, and by hidden output up to the model's maximum.
func (b *bill) mostOutput(bytes int64) int64 {
	p := b.plan
	most := max(p.Output, bytes)
	if p.hidesOutput() {
		model := max(p.Price.MaxOutput, p.Price.Context)
		most = max(most, cmp.Or(model, unknownContext)*p.Request.Choices())
	}
	return most + few*p.Request.Choices()
}

// within limits the charge to the hold, as for a call whose counts contradict.
func (b *bill) within() {
	r, held := b.result, b.hold.Max
	if b.past > 0 || len(r.Underpriced) > 0 {
		return
	}
	if r.Cost > held.Cost {
		r.Cost, r.Split = held.Cost, pricing.Split{}
	}
	r.Usage.Output = min(r.Usage.Output, max(b.held, b.plan.Output))
	if r.Usage.Input+r.Usage.Output > held.Tokens {
		r.Usage.Input = max(held.Tokens-r.Usage.Output, 0)
	}
}

// tellFaults counts what was wrong with a call's usage, and logs it once per model and fault.
func (c *Call) tellFaults() {
	r := &c.Result
	faults := r.UsageFaults
	if len(faults) == 0 && r.Fault != "" {
		faults = []UsageFault{Malformed}
	}
	for _, f := range faults {
		c.guard.metrics.faults.WithLabelValues(string(f)).Inc()
		provider, model := c.Plan.Target.Provider.ID, c.Plan.Price.Model
		if _, told := c.guard.told.LoadOrStore(fmt.Sprint("usage ", f, provider, " ", model), true); told {
			continue
		}
		c.guard.log.Warn("usage contradicts the call, charged by estimate", "fault", string(f), "provider", provider,
			"model", model, "text", r.Fault, "call", c.ID)
	}
}
