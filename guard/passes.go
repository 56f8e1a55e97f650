package guard

import (
	"cmp"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// A Messages call may consist of several passes: a model that answers in place of one that declined, a second
// model that is asked for advice, a summary of the conversation that is made first. Each is billed by its own
// model. What the request allows is held, and what the answer reports is charged.

// maxPasses is how many other models a request can name.
const maxPasses = 16

// pass is a pass that a request allows beside that of its model.
type pass struct {
	price         *pricing.Price
	terms         pricing.Terms
	input, output int64 // tokens of each
	times         int64
}

// ceiling returns the most that all times cost.
func (w *pass) ceiling(r *wire.Request) (pricing.Nano, error) {
	u := cacheWritten(r, pricing.Usage{Input: w.input, Output: w.output, Requests: 1})
	one, err := w.price.Ceiling(u, w.terms)
	most := int64(pricing.MaxNano / max(one, pricing.Nano(u.Input+u.Output), 1)) // also of the tokens of a free model
	if err != nil || w.times > most {
		return 0, pricing.ErrOverflow
	}
	return one * pricing.Nano(w.times), nil
}

// passes lists the passes that the request allows. The error is a *wire.Error.
func (e *estimator) passes() error {
	r := e.plan.sent
	if len(r.Advisors)+len(r.Fallbacks) > maxPasses {
		return wire.BadRequest("fallbacks", "array_above_max_length",
			"A request can name at most %d advisors and fallbacks together", maxPasses)
	}
	if r.Compacts {
		if err := e.compaction(); err != nil {
			return err
		}
	}
	for i := range r.Advisors {
		if err := e.advisor(&r.Advisors[i]); err != nil {
			return err
		}
	}
	return e.fallbacks(r.Fallbacks)
}

// compaction adds the pass that summarizes the conversation: all of it is input, and nothing bounds its output but
// the model.
func (e *estimator) compaction() error {
	p := e.plan
	most := p.Price.MaxOutput
	if most <= 0 {
		return wire.BadRequest("context_management", "request_not_priced",
			"The cost of a compaction cannot be reserved, because the output of %q has no known maximum", p.Request.Model)
	}
	p.passes = append(p.passes, pass{price: p.Price, terms: p.terms, input: p.Input, output: most, times: 1})
	return nil
}

// advisor adds the passes of a second model, each of which reads the conversation and all that was answered.
func (e *estimator) advisor(a *wire.Advisor) error {
	p := e.plan
	if a.Uses < 0 || a.Limit < 0 {
		return wire.BadRequest("tools", "builtin_tool_refused",
			"The cost of an advisor is only limited with max_uses and max_tokens. Set both in the tool")
	}
	price, err := e.passPrice("tools", a.Model)
	if err != nil {
		return err
	}
	in := p.Input + p.Output + a.Uses*a.Limit
	p.passes = append(p.passes, pass{price: price, terms: p.terms, input: in, output: a.Limit, times: a.Uses})
	return nil
}

// fallbacks adds the dearest of the models that may answer in place of the requested one, which then has declined.
func (e *estimator) fallbacks(list []wire.Fallback) error {
	p := e.plan
	var dearest *pass
	var most pricing.Nano
	for _, f := range list {
		price, err := e.passPrice("fallbacks", f.Model)
		if err != nil {
			return err
		}
		one := pass{price: price, terms: p.terms, input: p.Input, output: p.Output, times: 1}
		if f.Limit >= 0 {
			one.output = f.Limit
		}
		if f.Speed != "" {
			one.terms.ServiceTier = f.Speed
		}
		cost, err := one.ceiling(p.Request)
		if err != nil {
			return wire.BadRequest("fallbacks", "request_not_priced", "This request cannot be priced: %v", err)
		}
		if dearest == nil || cost > most {
			dearest, most = &one, cost
		}
	}
	if dearest != nil {
		p.passes = append(p.passes, *dearest)
	}
	return nil
}

// passPrice returns the price of a model that a member of the request names. The caller must be allowed to use it.
func (e *estimator) passPrice(param, model string) (*pricing.Price, error) {
	p := e.plan
	if model == "" || model == "default" {
		return nil, wire.BadRequest(param, "request_not_priced",
			"The cost of models that this request does not name cannot be reserved. Name them in %s", param)
	}
	if err := allowed(p.Caller, model); err != nil {
		return nil, wire.BadRequest(param, "model_not_found", "The model %.100q in %s does not exist or this key may not "+
			"use it", model, param)
	}
	price, err := e.price(providers.Target{Provider: p.Target.Provider, Pool: p.Target.Pool, Model: model}, p.at)
	if err != nil {
		return nil, wire.BadRequest(param, "model_not_priced", "%v", err)
	}
	return price, nil
}

// passCeiling returns the most that the passes beside the model's cost, and their tokens.
func (p *Plan) passCeiling() (cost pricing.Nano, tokens int64, err error) {
	for i := range p.passes {
		one, err := p.passes[i].ceiling(p.Request)
		if err != nil {
			return 0, 0, err
		}
		cost += one
		if cost > pricing.MaxNano {
			return 0, 0, pricing.ErrOverflow
		}
		tokens += (p.passes[i].input + p.passes[i].output) * p.passes[i].times
	}
	return cost, tokens, nil
}

// priceSteps returns the price of an answer that consists of several passes: each by its own model. What the sums
// of the answer have in addition to the passes of its model is charged at the requested one.
func (b *bill) priceSteps(a wire.Answer) (all pricing.Usage, split pricing.Split, err error) {
	rest := a.Usage
	for i := range a.Steps {
		one := &a.Steps[i]
		used := b.timed(one.Usage, one.TimedWrites)
		part, err := b.splitStep(one, used, a)
		if err != nil {
			return all, split, err
		}
		split, all = plus(split, part), sumOf(all, used)
		if one.Kind == wire.MessageStep || one.Model != "" && one.Kind == "fallback_message" {
			rest = less(rest, one.Usage)
		}
	}
	used := b.timed(rest, a.TimedWrites)
	part, err := b.split(used, a.Model, a.ServiceTier)
	return sumOf(all, used), plus(split, part), err
}

// splitStep prices one pass: by the model that it names, or else like an answer without passes.
func (b *bill) splitStep(s *wire.Step, used pricing.Usage, a wire.Answer) (pricing.Split, error) {
	other := b.priceOf(s.Model)
	switch {
	case s.Model == "":
		return b.split(used, a.Model, a.ServiceTier)
	case other == nil:
		other = b.plan.Price
	}
	return other.Split(used, b.settleTerms(a.ServiceTier))
}

// checkSteps returns a fault if a pass used more than its model can.
func (b *bill) checkSteps(steps []wire.Step) []UsageFault {
	for i := range steps {
		price := b.plan.Price
		if other := b.priceOf(steps[i].Model); other != nil {
			price = other
		}
		u := &steps[i].Usage
		switch {
		case u.Input > max(cmp.Or(price.Context, unknownContext), b.plan.Input):
			return []UsageFault{HighInput}
		case u.Output > max(cmp.Or(price.MaxOutput, unknownContext), b.plan.Output):
			return []UsageFault{HighOutput}
		}
	}
	return nil
}

// unseenPasses adds what the passes beside the model's may have cost to the charge of an answer that broke off before
// it told of them.
func (b *bill) unseenPasses() {
	cost, _, err := b.plan.passCeiling()
	if err != nil || b.several {
		return
	}
	b.result.Cost += cost
	b.result.Split.Output += cost
}

func plus(a, b pricing.Split) pricing.Split {
	return pricing.Split{
		Input: a.Input + b.Input, CachedInput: a.CachedInput + b.CachedInput, CacheWrite: a.CacheWrite + b.CacheWrite,
		Output: a.Output + b.Output, Fees: a.Fees + b.Fees,
	}
}

// sumOf adds the counts that Messages have.
func sumOf(a, b pricing.Usage) pricing.Usage {
	a.Input, a.CachedInput = a.Input+b.Input, a.CachedInput+b.CachedInput
	a.CacheWrite, a.CacheWrite1h = a.CacheWrite+b.CacheWrite, a.CacheWrite1h+b.CacheWrite1h
	a.Output, a.Reasoning = a.Output+b.Output, a.Reasoning+b.Reasoning
	a.ToolCalls += b.ToolCalls
	return a
}

// less returns what of the counts is not in others.
func less(a, b wire.Usage) wire.Usage {
	a.CachedInput, a.CacheWrite = max(a.CachedInput-b.CachedInput, 0), max(a.CacheWrite-b.CacheWrite, 0)
	a.CacheWrite1h = max(a.CacheWrite1h-b.CacheWrite1h, 0)
	a.Input = max(a.Input-b.Input, a.CachedInput+a.CacheWrite+a.CacheWrite1h)
	a.Output, a.ToolCalls = max(a.Output-b.Output, 0), max(a.ToolCalls-b.ToolCalls, 0)
	a.Reasoning = min(a.Reasoning, a.Output)
	return a
}
