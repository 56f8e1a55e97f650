package guard

import (
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// Outcome says how a call ended; it is a metric label and a ledger field.
type Outcome string

// The outcomes of a call.
const (
	Completed     Outcome = "completed"      // the answer's usage was billed
	NoUsage       Outcome = "no_usage"       // a complete answer without usable usage
	Rejected      Outcome = "rejected"       // the provider refused before any work: void
	Busy          Outcome = "busy"           // the provider answered 429 or 503: void
	Unsent        Outcome = "unsent"         // the provider was not reached: void
	UpstreamError Outcome = "upstream_error" // a complete 408 or 5xx answer
	Broken        Outcome = "broken"         // reset, timeout or truncation
	ClientGone    Outcome = "client_gone"    // cancelled because the caller left
	Cut           Outcome = "cut"            // cancelled because its hold could not grow
)

var outcomes = []Outcome{Completed, NoUsage, Rejected, Busy, Unsent, UpstreamError, Broken, ClientGone, Cut}

// Result is what became of a call. Cost is final as soon as Forward returns.
type Result struct {
	Outcome   Outcome
	Status    int // HTTP status of the provider; 0 when there was none
	Usage     pricing.Usage
	Cost      pricing.Nano
	Split     pricing.Split // of Cost; zero when it is not made up of Usage
	Estimated bool
	// Underpriced is what was charged above the request's price, by reason; nil for
	// nearly all calls.
	Underpriced map[Reason]pricing.Nano
	Failed      bool        // the stream carried an error event of the provider's
	Fault       string      // what was wrong with the provider's usage, if anything
	Refusal     *wire.Error // the provider's error, when that is what was relayed
	Ending      *wire.Error // our error that a stream ended in, if it did
	UpstreamID  string      // the provider's x-request-id
	Model       string      // as the answer names it
	Tier        string      // as the answer names it
	RetryAfter  time.Duration
	FirstByte   time.Duration
	Took        time.Duration
}

// Counted is how many tokens a provider that counts actual ones has counted
// after Forward; -1 when that is not known.
func (c *Call) Counted() int64 {
	switch r := &c.Result; {
	case r.Outcome == Busy, r.Outcome == Rejected:
		return 0
	case r.Outcome == Completed:
		return r.Usage.Input + r.Usage.Output
	}
	return -1
}

// Call is one admitted call. Its methods are for one goroutine; End may be
// called more than once.
type Call struct {
	Plan    *Plan
	ID      string
	Attempt int
	JobID   string
	Waited  time.Duration // in the queue, before the hold
	Class   string        // of a job that nobody waits for: async or batch

	Hold   *budget.Hold
	Result Result
	// Alias is what the caller knows the response by, if not by the provider's id.
	Alias string
	// Without is set when the call was admitted without the store.
	Without StoreFailure

	guard    *Guard
	held     int64 // tokens of output the hold covers
	told     int64 // nano-USD that the answer's head says it cost
	past     int64 // tokens of output that were seen, when that is more than was ever to be held
	end      sync.Once
	settling tracing.Span
}

// faultOf says why an answer's usage cannot be billed, or nothing. Some servers
// report zeros for what they did not count.
func (c *Call) faultOf(a wire.Answer) string {
	if a.Fault == "" && a.HasUsage && a.Usage.Input == 0 && a.Usage.Output == 0 && a.Usage.AudioMillis == 0 &&
		c.Plan.Input > 0 {
		return "usage is all zero"
	}
	if a.Hidden && (c.Plan.Target.Provider.Kind == providers.Gemini || c.Plan.Price.Provider == "google") {
		return "" // its thoughts, which are billed as output
	}
	return a.Fault
}

// charge sets the result from the provider's usage, which must be without
// fault.
func (c *Call) charge(a wire.Answer) {
	r := &c.Result
	r.Outcome, r.Usage = Completed, pricing.Usage(a.Usage)
	r.Model, r.Tier = a.Model, a.ServiceTier
	r.Usage.Requests = 1
	r.Usage.ToolCalls = max(r.Usage.ToolCalls, c.Plan.searches())
	if c.Plan.Request.LongCache && !a.TimedWrites { // as was asked for, and held
		r.Usage.CacheWrite, r.Usage.CacheWrite1h = 0, r.Usage.CacheWrite
	}
	split, err := c.split(r.Usage, a.Model, a.ServiceTier)
	if err != nil { // a tier the catalogue does not know: never below the hold
		c.chargeHold(Completed)
		r.Fault = err.Error()
		return
	}
	r.Cost, r.Split = split.Total(), split
	c.learn()
}

func (c *Call) settleTerms(tier string) pricing.Terms {
	t := c.Plan.terms
	if tier != "" {
		t.ServiceTier = tier
	}
	return t
}

// chargeEstimate charges counted tokens, marked estimated: what is held at most,
// unless more was seen.
func (c *Call) chargeEstimate(o Outcome, output int64) {
	r := &c.Result
	r.Outcome, r.Estimated = o, true
	r.Usage = c.Plan.usage(max(min(output, c.Plan.Output), c.past))
	if o == UpstreamError { // a provider that was lost at the start has hardly read the documents, or called a tool
		r.Usage.Input, r.Usage.ToolCalls = r.Usage.Input-c.Plan.unread, 0
	}
	split, err := c.split(r.Usage, r.Model, r.Tier)
	r.Cost, r.Split = split.Total(), split
	bounded := c.past == 0 && len(r.Underpriced) == 0
	if err != nil || bounded && r.Cost > c.Plan.Max.Cost {
		r.Cost, r.Split = c.Plan.Max.Cost, pricing.Split{}
	}
	if c.past > 0 {
		r.more(OverLimit, r.Cost-c.Plan.Max.Cost)
	}
}

// chargeHold charges the whole hold, or what it would be for the model that answered,
// marked estimated: nothing is known of what the provider did, but what was seen.
func (c *Call) chargeHold(o Outcome) {
	r := &c.Result
	if c.past > 0 {
		c.chargeEstimate(o, c.past)
		if r.Cost >= c.Hold.Max.Cost {
			return
		}
	}
	r.Outcome, r.Estimated = o, true
	r.Usage = c.Plan.usage(c.held)
	r.Cost, r.Split = c.Hold.Max.Cost, pricing.Split{}
	r.Underpriced = nil // the hold is more
	if other := c.priceOf(r.Model); other != nil {
		if split, err := other.Split(r.Usage, c.settleTerms(r.Tier)); err == nil && split.Total() > r.Cost {
			r.more(DearerModel, split.Total()-r.Cost)
			r.Cost, r.Split = split.Total(), split
		}
	}
}
