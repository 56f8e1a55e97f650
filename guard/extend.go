package guard

import (
	"context"
	"errors"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
)

// DefaultGrowStep is how many tokens of output a growing hold is ahead of each
// answer: twice what a provider of 300 tokens a second and its largest chunk
// produce in the 1.25 s in which an extension is decided and the provider
// cancelled.
const DefaultGrowStep = 800

// grows reports whether the call's hold may begin below the most it can cost:
// its caller named no output limit, and all output shows while it comes.
func (e *estimator) grows() bool {
	r := e.plan.Request
	shows := r.Endpoint == wire.ChatCompletions || r.Endpoint == wire.Responses
	return e.plan.Caller.Org.Grow && shows && r.Stream && r.OutputLimit < 0 && !e.plan.hidesOutput()
}

// first sets what is held before the call is sent: all it can cost, or what it
// will probably put out and half a step, but no less than a step.
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

// due reports whether a hold has to grow once so much was put out: half a step
// is left for what comes while that is decided.
func (c *Call) due(produced int64) bool {
	return c.bill.held < c.Plan.Output && c.bill.held-produced < c.Plan.step/2
}

// grow extends the hold to so many tokens of output. When it cannot, the error
// says why and the hold stays as it was.
func (c *Call) grow(ctx context.Context, output int64) error {
	cost, err := c.Plan.ceiling(output)
	if err != nil {
		return err
	}
	more := budget.Amounts{Cost: max(cost-c.Hold.Max.Cost, 0), Tokens: output - c.bill.held}
	// A caller that hangs up must not cut off an extension that may have been
	// applied; whether its call goes on is not decided here.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.guard.deadline)
	defer cancel()
	_, err = c.guard.budget.Extend(ctx, c.Hold, more)
	c.guard.metrics.extended(err)
	if err == nil {
		c.bill.held = output
	}
	return err
}

// errCut is the cause of a provider's cancelled request whose hold cannot grow.
var errCut = errors.New("the hold cannot grow")

// cutError is what the caller is told of an answer that was cut off.
func (c *Call) cutError(err error) *wire.Error {
	var refused *budget.ExceededError
	if !errors.As(err, &refused) { // no store, or a hold that was lost
		return wire.ServiceUnavailable(
			"The limits cannot be checked at the moment, so the answer was cut off. The answer above is incomplete", time.Second,
			err)
	}
	e := *refused
	held := map[budget.Metric]int64{budget.Cost: int64(c.Hold.Max.Cost), budget.Tokens: c.Hold.Max.Tokens}
	advice := ""
	if held[e.Binding.Metric]+e.Requested > e.Binding.Amount { // the whole limit is too small for this answer
		e.Binding.Never = true
		advice = c.Plan.advice(&e)
	}
	cut := &Refusal{ExceededError: &e, Advice: " The answer above was cut off and is incomplete." + advice, plan: c.Plan}
	c.guard.CountRefusal(cut, false)
	return cut.Public()
}

// cover extends the hold of an answer that does not show while it comes to all
// it can cost. The error is a *wire.Error: the provider was cancelled.
func (e *upstreamCall) cover() error {
	c := e.call
	if c.bill.held >= c.Plan.Output {
		return nil
	}
	err := c.grow(e.upstream, c.Plan.Output)
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

// produced is how many tokens of output the provider is known to have put out.
func (r *relay) produced() int64 {
	n := r.visible()
	if r.usage {
		n = max(n, r.answer.Usage.Output)
	}
	return n
}

// ahead keeps the hold ahead of what has been put out.
func (r *relay) ahead() {
	c := r.call
	if r.refused != nil || c.bill.held >= c.Plan.Output || !c.due(r.most()) {
		return
	}
	if n := r.produced(); c.due(n) {
		if err := c.grow(r.errand.upstream, min(n+c.Plan.step, c.Plan.Output)); err != nil {
			r.refused = c.cutError(err)
		}
	}
}

// covered reports whether all that has been put out is held.
func (r *relay) covered() bool { return r.refused == nil || r.produced() <= r.call.bill.held }

// over reports whether the provider has gone on beyond the whole output limit, and
// notes what is to be paid for that.
func (r *relay) over() bool {
	c := r.call
	if c.Plan.Request.Creation != nil {
		return false
	}
	c.bill.past = 0
	if r.usage && r.answer.Usage.Output > c.Plan.Output+few*c.Plan.Request.Choices() {
		c.bill.past = r.answer.Usage.Output
	}
	if int64(r.count.Upper())+r.apart <= r.allowed { // which costs nothing to ask
		return c.bill.past > 0
	}
	if n := int64(r.count.Count()) + r.apart; n > r.allowed {
		c.bill.past = max(c.bill.past, r.billed(n))
	}
	return c.bill.past > 0
}

// within cuts a stream off that goes on beyond the output limit.
func (r *relay) within() {
	if r.refused == nil && !r.whole() && r.over() {
		r.refused, r.dropped = r.call.overrun(), true
	}
}

// sever ends a stream whose hold cannot grow: the provider is cancelled, what it
// put out is charged, and the caller is told.
func (r *relay) sever() error {
	r.errand.cancel(errCut)
	r.over()
	r.naming()
	c := r.call
	switch {
	case r.usage && r.whole():
		c.bill.charge(r.answer)
		c.Result.Outcome = Cut
	case c.bill.bounded():
		c.bill.chargeEstimate(Cut, r.produced())
	default:
		c.bill.chargeHold(Cut)
	}
	c.bill.reported(r.answer.Cost)
	if r.errand.gone() || r.gone {
		return ErrGone
	}
	return r.fail(r.refused)
}
