package guard

import (
	"fmt"
	"math"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/tokenizer"
)

// What a provider bills may be more than the request's price says: another model
// answered, the answer tells a greater cost, or the output limit was not kept. The
// greater is charged, and the difference is counted.

// Reason is why a call cost more than it was priced at; it is a metric label.
type Reason string

// The reasons why a call costs more than it was priced at.
const (
	DearerModel  Reason = "model"  // the answer names a model with a greater price
	ReportedCost Reason = "cost"   // the answer tells a greater cost
	OverLimit    Reason = "output" // the provider went on beyond the output limit
)

var reasons = []Reason{DearerModel, ReportedCost, OverLimit}

// more notes that the call costs more than its price by itself, for a reason.
func (r *Result) more(why Reason, by pricing.Nano) {
	if by <= 0 {
		return
	}
	if r.Underpriced == nil {
		r.Underpriced = map[Reason]pricing.Nano{}
	}
	r.Underpriced[why] += by
}

// split prices usage by the model that was asked for and by the one that the answer
// names, if that has a price too, and returns the greater. A price for unknown models
// gives way to the price of the one that is named.
func (b *bill) split(u pricing.Usage, named, tier string) (pricing.Split, error) {
	terms := b.settleTerms(tier)
	asked, err := b.plan.Price.Split(u, terms)
	other := b.priceOf(named)
	if err != nil || other == nil {
		return asked, err
	}
	answered, err := other.Split(u, terms)
	if unknown := b.policy.Load().UnknownPrice; unknown != nil && unknown.Model == b.plan.Price.Model {
		return answered, err
	}
	if err != nil || answered.Total() <= asked.Total() {
		return asked, err
	}
	b.result.more(DearerModel, answered.Total()-asked.Total())
	return answered, nil
}

// priceOf is the price of the model an answer names, nil when that is the one asked
// for or has no price. A gateway that names a model in full means the one it was
// asked for, which may have a price of its own there.
func (b *bill) priceOf(model string) *pricing.Price {
	asked := b.plan.Target.Model
	if model == "" || model == asked {
		return nil
	}
	p, err := b.policy.Load().Catalogue.Lookup(b.plan.Target.Provider.ID, model, b.plan.at)
	if err != nil || p.Model == b.plan.Price.Model && p.Provider == b.plan.Price.Provider {
		return nil
	}
	if p.Provider != b.plan.Price.Provider && versionOf(model, asked) {
		return nil
	}
	return p
}

// versionOf reports whether a model's name is another's with a date or a version
// behind it: gpt-4o-2024-08-06 of gpt-4o.
func versionOf(name, short string) bool {
	if len(name) <= len(short)+1 || name[:len(short)] != short {
		return false
	}
	rest := name[len(short):]
	for _, b := range []byte(rest[1:]) {
		if b != '-' && b != '.' && (b < '0' || b > '9') {
			return false
		}
	}
	return rest[0] == '-' || rest[0] == '@'
}

// reported charges the cost that the answer tells, in its body or its head, when that is
// more.
func (b *bill) reported(cost int64) {
	r := b.result
	cost = max(cost, b.told)
	by := pricing.Nano(cost) - r.Cost
	if b.plan.Target.Provider.IgnoreCost || by <= 0 || r.void() {
		return
	}
	r.more(ReportedCost, by)
	if r.Split.Total() == r.Cost {
		r.Split.Fees += by
	}
	r.Cost = pricing.Nano(cost)
}

// few is by how many tokens two counts of one answer may differ.
const few = 16

// mostCount is the largest count of an answer's text with which the provider may have
// kept to the output limit.
func (b *bill) mostCount() int64 {
	if b.plan.Request.Echo { // the text is the prompt's, too
		return math.MaxInt64
	}
	n := b.plan.Output + few*b.plan.Request.Choices()
	if _, factor := tokenizer.Multiplier(b.plan.Target.Model); factor != 1000 || b.plan.hidesOutput() {
		n += n / 2 // a tokenizer that is not public, or text that is not all of the output
	}
	return n
}

// overrun is what the caller is told of an answer that was cut off because the
// provider did not keep to its output limit.
func (c *Call) overrun() *wire.Error {
	return wire.BadGateway(fmt.Sprintf("The provider exceeded the output limit of %d tokens, which is all that is held "+
		"for this call. The answer above was cut off and is incomplete", c.Plan.Output), nil)
}

// tellUnderpriced counts what a call cost more than it was priced at, and tells the
// log once for every model and reason.
func (c *Call) tellUnderpriced() {
	for why, by := range c.Result.Underpriced {
		g, model := c.guard, c.Plan.Price.Model
		g.metrics.underpriced.WithLabelValues(c.Plan.Target.Pool, string(why)).Add(by.Float()) // a metric, not the ledger
		_, told := g.told.LoadOrStore(string(why)+" "+c.Plan.Target.Provider.ID+" "+model, true)
		if !told {
			g.log.Warn("call cost more than its price", "reason", string(why),
				"provider", c.Plan.Target.Provider.ID, "model", model,
				"answered", c.Result.Model, "more", by.String(), "call", c.ID)
		}
	}
}
