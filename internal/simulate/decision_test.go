package simulate

import (
	"time"

	"github.com/llmguard/llmguard/pricing"
)

var outcomeNames = [...]string{"skipped", "at once", "waited", "gave up", "refused"}

// String is the word for reports.
func (o Outcome) String() string { return outcomeNames[o] }

// Decision is what would have become of one call.
type Decision struct {
	Call    Call
	Outcome Outcome
	Wait    time.Duration // before it ran or gave up
	Why     string        // what refused it or made it wait, or why it was skipped
}

// Each calls fn for every call, in the order in which they came, until it returns
// false.
func (r *Result) Each(fn func(Decision) bool) {
	for i := range r.trace.calls {
		if !fn(Decision{r.trace.call(i), r.outcomes[i], time.Duration(r.waited[i]) * time.Microsecond, r.why[r.reasons[i]]}) {
			return
		}
	}
}

func (t *Trace) call(i int) Call {
	r, name := &t.calls[i], func(id uint32) string { return t.names[id] }
	return Call{
		Org: name(r.who.org), User: name(r.who.user), Key: name(r.who.key), IP: name(r.who.ip),
		Model: name(r.who.model), Provider: name(r.who.provider), Endpoint: name(r.who.endpoint),
		At: time.UnixMicro(r.at), Took: time.Duration(r.took) * time.Microsecond, Held: pricing.Nano(r.held),
		Cost:       pricing.Nano(r.cost),
		HeldTokens: r.heldTokens, Tokens: r.tokens, QuotaTokens: r.quota, Stream: r.stream, Refused: r.refused,
		Class: [...]string{"", "", "async", "batch"}[r.class],
	}
}
