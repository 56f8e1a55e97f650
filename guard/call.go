package guard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/wire"
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
	UpstreamError Outcome = "upstream_error" // a complete 5xx answer
	Broken        Outcome = "broken"         // reset, timeout or truncation
	ClientGone    Outcome = "client_gone"    // cancelled because the caller left
)

// settleTimeout bounds one attempt to settle; settleTries attempts are made
// with growing pauses, about two minutes in all. After that the hold expires
// and is charged in full.
const (
	settleTimeout = 3 * time.Second
	settleTries   = 30
	settlePause   = 4 * time.Second
)

// Result is what became of a call. Cost is final as soon as Forward returns.
type Result struct {
	Outcome    Outcome
	Status     int // HTTP status of the provider; 0 when there was none
	Usage      pricing.Usage
	Cost       pricing.Nano
	Split      pricing.Split // of Cost; zero when it is not made up of Usage
	Estimated  bool
	Fault      string      // what was wrong with the provider's usage, if anything
	Refusal    *wire.Error // the provider's error, when that is what was relayed
	UpstreamID string      // the provider's x-request-id
	Model      string      // as the answer names it
	Tier       string      // as the answer names it
	RetryAfter time.Duration
	FirstByte  time.Duration
	Took       time.Duration
}

// Call is one admitted call. Its methods are for one goroutine; End may be
// called more than once.
type Call struct {
	*Plan
	ID      string
	Attempt int
	JobID   string
	Waited  time.Duration // in the queue, before Begin

	Hold   *budget.Hold
	Result Result

	guard *Guard
	end   sync.Once
}

// Begin holds the plan's cost against every applying limit, all or nothing.
// Errors are *Refusal, or wrap budget.ErrUnavailable.
func (g *Guard) Begin(ctx context.Context, p *Plan, id string, attempt int, jobID string) (*Call, error) {
	c := &Call{Plan: p, ID: id, Attempt: attempt, JobID: jobID, guard: g}
	// A caller that hangs up must not cut off a hold that may have been applied.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.deadline)
	defer cancel()
	who := budget.Call{
		ID: id, Attempt: attempt, Org: p.Caller.Org.ID, User: p.Caller.User, Key: p.Caller.Key,
		IP: p.Caller.IP, Model: p.Request.Model, Provider: p.Target.Provider.ID,
		Endpoint: string(p.Request.Endpoint), PriceVersion: p.Price.Version, JobID: jobID,
	}
	hold, err := g.budget.Hold(bounded, p.Limits, who, p.Max, g.expected(p))
	g.metrics.held(err)
	if err != nil {
		if errors.Is(err, budget.ErrUnavailable) {
			g.voidLate(ctx, who)
		}
		return nil, p.refusal(err)
	}
	c.Hold = hold
	c.Result.Outcome = Unsent
	return c, nil
}

// voidLate gives back a hold whose reply was lost; it may have been applied.
func (g *Guard) voidLate(ctx context.Context, who budget.Call) {
	ctx = context.WithoutCancel(ctx)
	g.settling.Go(func() {
		g.retry(ctx, "void", who.ID, func(ctx context.Context) error {
			return g.budget.VoidLost(ctx, who)
		})
	})
}

// End settles the call, or voids it when the provider did no work. It returns
// at once; Close waits for the write. A failed write is tried again until the
// hold's expiry has long charged it.
func (c *Call) End(ctx context.Context) {
	c.end.Do(func() {
		ctx = context.WithoutCancel(ctx)
		c.guard.settling.Go(func() {
			c.guard.retry(ctx, "settle", c.ID, c.write)
		})
	})
}

// EndNow settles like End but waits for the first attempt, so that a job is
// not called done before its money is. Further attempts go on behind it.
func (c *Call) EndNow(ctx context.Context) {
	c.end.Do(func() {
		ctx = context.WithoutCancel(ctx)
		once, cancel := context.WithTimeout(ctx, settleTimeout)
		defer cancel()
		if err := c.write(once); err != nil {
			c.guard.settling.Go(func() { c.guard.retry(ctx, "settle", c.ID, c.write) })
		}
	})
}

func (c *Call) write(ctx context.Context) error {
	r := &c.Result
	if r.void() {
		return c.guard.budget.Void(ctx, c.Hold)
	}
	receipt, err := c.guard.budget.Settle(ctx, c.Hold, budget.Settlement{
		Actual: budget.Amounts{Cost: r.Cost, Tokens: r.Usage.Input + r.Usage.Output},
		Usage:  r.Usage, Split: r.Split, Estimated: r.Estimated, Outcome: string(r.Outcome), Status: r.Status,
		UpstreamID: r.UpstreamID, ServiceTier: r.Tier, Waited: c.Waited, Took: r.Took,
	})
	if err == nil {
		c.guard.metrics.settled(c, receipt)
	}
	return err
}

func (r *Result) void() bool {
	return r.Outcome == Unsent || r.Outcome == Rejected || r.Outcome == Busy
}

// retry runs a write to the store until it succeeds or the tries are used up.
func (g *Guard) retry(ctx context.Context, what, id string, write func(context.Context) error) {
	for try := 1; ; try++ {
		once, cancel := context.WithTimeout(ctx, settleTimeout)
		err := write(once)
		cancel()
		if err == nil {
			return
		}
		g.metrics.settleErrors.Inc()
		if try == settleTries || !errors.Is(err, budget.ErrUnavailable) {
			g.log.Error("call left to expire: its hold will be charged in full", "what", what, "call", id, "error", err)
			return
		}
		time.Sleep(min(time.Duration(try)*100*time.Millisecond, settlePause))
	}
}

// faultOf says why an answer's usage cannot be billed, or nothing. Some servers
// report zeros for what they did not count.
func (c *Call) faultOf(a wire.Answer) string {
	if a.Fault == "" && a.HasUsage && a.Usage.Input == 0 && a.Usage.Output == 0 && c.Input > 0 {
		return "usage is all zero"
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
	split, err := c.priceOf(a.Model).Split(r.Usage, c.settleTerms(a.ServiceTier))
	if err != nil { // a tier the catalogue does not know: never below the hold
		c.chargeHold(Completed)
		r.Fault = err.Error()
		return
	}
	r.Cost, r.Split = split.Total(), split
	c.learn()
}

// priceOf prices by the model the answer names (contract R20) when that is
// another priced model, and by the price at admission otherwise.
func (c *Call) priceOf(model string) *pricing.Price {
	if model == "" || model == c.Target.Model {
		return c.Price
	}
	p, err := c.guard.Policy().Catalogue.Lookup(c.Target.Provider.ID, model, c.at)
	if err != nil || p.Provider != c.Price.Provider || p.Model == c.Price.Model {
		return c.Price
	}
	return p
}

func (c *Call) settleTerms(tier string) pricing.Terms {
	t := c.terms
	if tier != "" {
		t.ServiceTier = tier
	}
	return t
}

// chargeEstimate charges counted tokens, marked estimated.
func (c *Call) chargeEstimate(o Outcome, output int64) {
	r := &c.Result
	r.Outcome, r.Estimated = o, true
	r.Usage = c.usage(min(output, c.Output))
	split, err := c.Price.Split(r.Usage, c.terms)
	r.Cost, r.Split = split.Total(), split
	if err != nil || r.Cost > c.Max.Cost {
		r.Cost, r.Split = c.Max.Cost, pricing.Split{}
	}
}

// chargeHold charges the whole hold, marked estimated: nothing is known of
// what the provider did.
func (c *Call) chargeHold(o Outcome) {
	r := &c.Result
	r.Outcome, r.Estimated = o, true
	r.Usage = c.usage(c.Output)
	r.Cost, r.Split = c.Max.Cost, pricing.Split{}
}
