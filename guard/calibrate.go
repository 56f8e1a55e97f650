package guard

import (
	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/tokenizer"
)

// textPart is the count of a request's text, before any factor.
type textPart struct {
	tokens   int64
	class    calibration.Class
	expected int64 // input tokens of the whole request
	pure     bool  // the request is text only, so its bill shows the factor
	certain  int64 // tokens that the provider must have read, by our count
	bytes    int64 // of all text
}

// total returns the input tokens to hold for a request: its text by the factor learned for
// the model, plus what is priced separately.
func (e *estimator) total(c *counter) int64 {
	p := e.plan
	r, model := p.sent, p.Target.Model
	tokens := c.tokens + int64(tokenizer.Basis(model, c.classes)-c.classes.Tokens)
	class := calibration.Classify(c.classes)
	expected, hold := e.calibration.Tokens(p.Caller.Org.ID, model, class, tokens)
	alone := r.Tools.IsZero() && r.Functions.IsZero() && r.ResponseFormat.IsZero() && p.searches() == 0
	p.text = textPart{
		tokens: tokens, class: class, expected: expected + c.fixed + r.InputTokens,
		pure:    alone && c.fixed == 0 && r.InputTokens == 0 && c.classes.Bytes > 0,
		certain: c.certain + r.InputTokens,
		bytes:   int64(c.classes.Bytes + r.Tools.Len() + r.Functions.Len() + r.ResponseFormat.Len()),
	}
	return hold + c.fixed
}

// Expected returns what the call will probably take of its limits according to the
// calibration, at most what is held.
func (pl *Planner) Expected(p *Plan) budget.Amounts {
	if p.cached {
		return p.First
	}
	u := pricing.Usage{Input: min(p.text.expected, p.Input), Output: p.Output, Requests: 1, SearchUnits: p.units.most}
	if known, _ := pl.calibration.Output(p.Caller.Org.ID, p.Caller.User, p.Target.Model); known > 0 {
		u.Output = min(known, p.Output)
	}
	cost, err := p.Price.Charge(u, p.terms)
	if err != nil { // a service tier that only the answer will reveal
		cost = p.Max.Cost
	}
	return budget.Amounts{Cost: min(cost, p.Max.Cost), Tokens: u.Input + u.Output}
}

// learn uses the provider's bill for a completed call as evidence. It skips cached input
// because vendors do not agree on what its count includes.
func (b *bill) learn() {
	r, learned := b.result, b.calibration
	if b.several { // whose sums are not those of one model
		return
	}
	if b.plan.converses() {
		learned.ObserveOutput(b.plan.Caller.Org.ID, b.plan.Caller.User, b.plan.Target.Model, r.Usage.Output)
	}
	if b.plan.text.pure && r.Usage.CachedInput+r.Usage.CacheWrite+r.Usage.CacheWrite1h == 0 {
		learned.ObserveInput(calibration.Sample{
			Org: b.plan.Caller.Org.ID, Model: b.plan.Target.Model, Version: r.Model, Name: b.plan.Price.Model,
			Class: b.plan.text.class, Estimated: b.plan.text.tokens, Actual: r.Usage.Input,
		})
	}
}
