package guard

import (
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/quota"
)

// Outcome says how a call ended. It is a metric label and a ledger field.
type Outcome string

// The outcomes of a call.
const (
	Completed     Outcome = "completed"      // the answer's usage was billed
	NoUsage       Outcome = "no_usage"       // a complete answer without usable usage
	Rejected      Outcome = "rejected"       // the provider refused before any work: void
	Busy          Outcome = "busy"           // the provider answered 429, 503 or 529: void
	Unsent        Outcome = "unsent"         // the provider was not reached: void
	UpstreamError Outcome = "upstream_error" // an answer that is an error of the provider's: void unless it is charged
	Broken        Outcome = "broken"         // reset, timeout or truncation
	ClientGone    Outcome = "client_gone"    // cancelled because the caller left
	Cut           Outcome = "cut"            // cancelled because its hold could not grow
	Cached        Outcome = "cached"         // answered from the org's response cache
)

var outcomes = []Outcome{Completed, NoUsage, Rejected, Busy, Unsent, UpstreamError, Broken, ClientGone, Cut, Cached}

// Failed reports whether the provider failed: the caller, or llmguard for a job, sends the request again.
func (o Outcome) Failed() bool { return o == UpstreamError || o == Broken }

// Result is the result of a call. Cost is final once Forward has returned.
type Result struct {
	Outcome   Outcome
	Status    int // HTTP status of the provider; 0 if there was none
	Usage     pricing.Usage
	Cost      pricing.Nano
	Split     pricing.Split // of Cost; zero if it is not derived from Usage
	Estimated bool
	// Underpriced is what was charged above the request's price, by reason; nil for
	// nearly all calls.
	Underpriced map[Reason]pricing.Nano
	Relayed     bool   // the whole answer was written, though its caller may have left then
	Ended       bool   // the answer came with the end that its provider's wire sends
	Failed      bool   // the stream contained an error event of the provider
	Fault       string // what was wrong with the provider's usage, if anything
	UsageFaults []UsageFault
	Refusal     *wire.Error // the provider's error, if that is what was relayed
	Ending      *wire.Error // our error that ended the stream, if any
	UpstreamID  string      // the provider's x-request-id
	AnswerID    string      // the id in the answer, as the caller gets it
	Model       string      // as named in the answer
	Tier        string      // as named in the answer
	RetryAfter  time.Duration
	FirstByte   time.Duration
	Took        time.Duration
}

// maxAnswerID is the longest id of an answer that the ledger records.
const maxAnswerID = 64

// identify records the id in the answer, unless there is one.
func (r *Result) identify(id string) {
	if r.AnswerID == "" && len(id) <= maxAnswerID {
		r.AnswerID = id
	}
}

// Counted returns, after Forward, the tokens counted by a provider that counts actual ones.
func (c *Call) Counted() quota.Counted {
	switch r := &c.Result; {
	case r.Outcome == Busy, r.Outcome == Rejected, r.Outcome == Cached:
		return quota.Counted{}
	case r.Outcome == Completed:
		u := &r.Usage
		return quota.Counted{Used: u.Input + u.Output, Cached: u.CachedInput, Output: u.Output}
	}
	return quota.Counted{Used: -1}
}

// Call is one admitted call. Its methods must be called from one goroutine. End may be
// called more than once.
type Call struct {
	Plan    *Plan
	ID      string
	Attempt int
	JobID   string
	Waited  time.Duration // time in the queue before the hold
	Class   string        // of a job without a connected caller: async or batch

	Hold   *budget.Hold
	Result Result
	// Alias is the id by which the caller knows the response, if not the provider's.
	Alias string
	// Cache is "hit", "miss" or "skipped" for a call that uses the response cache.
	Cache string
	cut   *Refusal // of more output; nil if there was none
	// Without is set if the call was admitted without the store.
	Without StoreFailure

	guard    *Guard
	bill     bill
	watch    stopwatch
	end      sync.Once
	settling tracing.Span
	again    bool            // it was interrupted by llmguard, and its job runs again
	settled  *budget.Settled // the store's answer to its end; nil if it was not asked
}

func newCall(g *Guard, p *Plan, id string, attempt int) *Call {
	c := &Call{Plan: p, ID: id, Attempt: attempt, guard: g}
	c.bill = bill{plan: p, result: &c.Result, policy: g.policy, calibration: g.calibration}
	return c
}

// holds records the call's hold, which covers `output` tokens of output.
func (c *Call) holds(h *budget.Hold, output int64) {
	c.Hold = h
	c.bill.hold = h
	c.bill.held = output
	c.Result.Outcome = Unsent
}
