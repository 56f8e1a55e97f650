package guard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
)

// DefaultGrowStep is how many tokens of output a growing hold stays ahead of each answer:
// twice what a provider generates, at 300 tokens a second plus its largest chunk, in the
// 1.25 s it takes to decide an extension and cancel the provider.
const DefaultGrowStep = 800

// stepTime is the time for which a step covers the output of a provider: 2.5 s, at 320 tokens a second by
// default. Output that is hidden is held at this rate.
const stepTime = 2500 * time.Millisecond

// grows reports whether the call's hold may start below the most it can cost: it is a stream whose output limit says
// nothing, because it has none or because agents send the largest.
func (e *estimator) grows() bool {
	r, rule := e.plan.Request, e.plan.Caller.Org.Hold
	if !e.plan.converses() || !r.Stream || rule == "max" {
		return false
	}
	return ofAgent(r) || rule == "grow" && r.OutputLimit < 0 && !e.plan.hidesOutput()
}

// ofAgent reports whether a request looks like one of an agent: Claude Code always names the largest limit, and
// Codex none.
func ofAgent(r *wire.Request) bool {
	return r.Endpoint == wire.Messages || r.Endpoint == wire.Responses && r.OutputLimit < 0 && !r.Tools.IsZero()
}

// first sets what is held before the call is sent: all it can cost, or the output it will
// probably generate plus half a step, but at least a step.
func (e *estimator) first() error {
	p := e.plan
	p.First, p.start = p.Max, p.Output
	if !e.grows() {
		return nil
	}
	p.step = p.Caller.Org.GrowStep
	if p.step <= 0 {
		p.step = DefaultGrowStep
	}
	p.step *= p.Request.Choices()
	known, _ := e.calibration.Output(p.Caller.Org.ID, p.Caller.User, p.Target.Model)
	p.start = min(max(p.step, known+p.step/2), p.Output)
	cost, err := p.ceiling(p.start)
	p.First = budget.Amounts{Cost: min(cost, p.Max.Cost), Tokens: p.Input + p.start}
	return err
}

// due reports whether a hold must grow after `produced` tokens of output: half a step is
// reserved for what is generated while the extension is decided.
func (c *Call) due(produced int64) bool {
	return c.bill.held < c.Plan.Output && c.bill.held-produced < c.Plan.step/2
}

// grow extends the hold to cover `output` tokens. On error the hold is unchanged.
func (c *Call) grow(ctx context.Context, output int64) error {
	cost, err := c.Plan.ceiling(output)
	if err != nil {
		return err
	}
	more := budget.Amounts{Cost: max(cost-c.Hold.Max.Cost, 0), Tokens: output - c.bill.held}
	// A caller that hangs up must not abort an extension that may have been applied.
	// Whether its call continues is decided elsewhere.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.guard.deadline)
	defer cancel()
	_, err = c.guard.budget.Extend(ctx, c.Hold, more)
	c.guard.metrics.extended(err)
	if err == nil {
		c.bill.held = output
	}
	return err
}

// errCut is the cause of cancelling a provider's request because the hold cannot grow.
var errCut = errors.New("the hold cannot be extended")

// cutError returns the error shown to the caller of an answer that was cut off.
func (c *Call) cutError(err error) *wire.Error {
	var refused *budget.ExceededError
	if !errors.As(err, &refused) { // no store, or the hold was lost
		return wire.ServiceUnavailable(
			"The limits cannot be checked right now, so the answer was cut off. The answer above is incomplete", time.Second,
			err)
	}
	e := *refused
	held := map[budget.Metric]int64{budget.Cost: int64(c.Hold.Max.Cost), budget.Tokens: c.Hold.Max.Tokens}
	advice := ""
	// the whole limit is too small for this answer
	if held[e.Binding.Metric]+e.Requested > e.Binding.Amount {
		e.Binding.Never = true
		advice = c.Plan.advice(&e)
	}
	cut := &Refusal{ExceededError: &e, Advice: " The answer above was cut off and is incomplete." + advice, plan: c.Plan}
	c.cut = cut
	return cut.Public()
}

// cover extends the hold to all the answer can cost, for an answer that is not visible as
// it is generated. The error is a *wire.Error; the provider has then been cancelled.
func (e *upstreamCall) cover() error {
	c := e.call
	if c.bill.held >= c.Plan.Output {
		return nil
	}
	began := time.Now()
	err := c.grow(e.upstream, c.Plan.Output)
	c.watch.redis(began)
	if err == nil {
		return nil
	}
	e.cancel(errCut)
	c.bill.chargeHold(Cut)
	if e.gone() {
		return ErrGone
	}
	return c.cutError(err)
}

// produced returns how many tokens of output the provider is known to have generated.
func (r *relay) produced() int64 {
	n := r.visible()
	if r.usage {
		n = max(n, r.answer.Usage.Output)
	}
	return max(n, r.paced())
}

// paced bounds the output that a growing hold has to cover although it is not visible: what a provider generates at
// the rate of a step since it began.
func (r *relay) paced() int64 {
	if r.tells || r.call.Plan.step == 0 || r.whole() {
		return 0
	}
	since := r.errand.sending.time()
	if r.usage && r.call.Plan.sent.Endpoint == wire.Messages { // its first event, at the begin of the output
		since = r.began
	}
	return int64(float64(time.Since(since)) / float64(stepTime) * float64(r.call.Plan.step))
}

// keepAhead extends the hold of a stream while nothing of its hidden output arrives, until stop is called.
func (r *relay) keepAhead() (stop func()) {
	if r.tells || r.call.Plan.step == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(r.errand.upstream)
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(stepTime / 8)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			cut := false
			r.guarded(func() {
				r.ahead()
				cut = r.refused != nil && !r.whole()
			})
			if cut {
				r.errand.cancel(errCut)
				return
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// guarded calls f while nobody else reads or changes what is known of the stream.
func (r *relay) guarded(f func()) {
	r.state.Lock()
	defer r.state.Unlock()
	f()
}

// ahead keeps the hold ahead of the output, and reports whether that took a decision in Redis.
func (r *relay) ahead() bool {
	c := r.call
	if r.refused != nil || c.bill.held >= c.Plan.Output || !c.due(r.most()) {
		return false
	}
	n := r.produced()
	if !c.due(n) {
		return false
	}
	if err := c.grow(r.errand.upstream, min(n+c.Plan.step, c.Plan.Output)); err != nil {
		r.refused = c.cutError(err)
	}
	return true
}

// covered reports whether all output generated so far is held.
func (r *relay) covered() bool { return r.refused == nil || r.produced() <= r.call.bill.held }

// over reports whether the provider has exceeded the whole output limit, and records what
// must be paid for that.
func (r *relay) over() bool {
	c := r.call
	if c.Plan.Request.Creation != nil {
		return false
	}
	c.bill.past = 0
	used := r.answer.Usage.Output
	if r.usage && used > c.Plan.Output+few*c.Plan.Request.Choices() && used <= c.bill.mostOutput(r.bytes) {
		c.bill.past = used
	}
	if int64(r.count.Upper())+r.apart <= r.allowed { // a cheap check first
		return c.bill.past > 0
	}
	if n := int64(r.count.Count()) + r.apart; n > r.allowed {
		c.bill.past = max(c.bill.past, r.billed(n))
	}
	return c.bill.past > 0
}

// within cuts off a stream that exceeds the output limit.
func (r *relay) within() {
	if r.refused == nil && !r.whole() && r.over() {
		r.refused, r.dropped = r.call.overrun(), true
	}
}

// sever ends a stream whose hold cannot grow: it cancels the provider, charges the output
// generated so far, and reports the error to the caller.
func (r *relay) sever() error {
	r.errand.cancel(errCut)
	r.over()
	r.naming()
	c := r.call
	switch {
	case r.usage && r.whole():
		r.charge()
		c.Result.Outcome = Cut
	case r.usage && !r.hidden:
		c.bill.chargePart(Cut, r.answer, r.seenText(), r.produced()-r.answer.Usage.Output)
	case c.bill.bounded():
		c.bill.chargeEstimate(Cut, r.produced())
	default:
		c.bill.chargeHold(Cut)
	}
	c.bill.reported(r.answer)
	if r.errand.gone() || r.gone {
		return ErrGone
	}
	return r.fail(r.refused)
}
