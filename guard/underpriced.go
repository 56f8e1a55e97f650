package guard

import (
	"fmt"
	"math"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/tokenizer"
)

// A provider may bill more than the request's price: another model answered, the answer
// reports a higher cost, or the output limit was exceeded. The higher amount is charged,
// and the difference is counted.

// Reason is why a call cost more than its price. It is a metric label.
type Reason string

// The reasons why a call costs more than its price.
const (
	DearerModel  Reason = "model"  // the answer names a more expensive model
	ReportedCost Reason = "cost"   // the answer reports a higher cost
	OverLimit    Reason = "output" // the provider exceeded the output limit
)

var reasons = []Reason{DearerModel, ReportedCost, OverLimit}

// more records an amount that the call costs above its own price, and why.
func (r *Result) more(why Reason, by pricing.Nano) {
	if by <= 0 {
		return
	}
	if r.Underpriced == nil {
		r.Underpriced = map[Reason]pricing.Nano{}
	}
	r.Underpriced[why] += by
}

// split prices usage both by the requested model and by the one that the answer names, if
// that has a price too, and returns the higher. A price for unknown models yields to the
// price of the named model.
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

// priceOf returns the price of the model an answer names; nil if that is the requested one
// or has no price. A gateway that answers with a dated name still means the requested
// model, which may have its own price at the gateway.
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

// versionOf reports whether a model's name is another's with a date or a version appended,
// such as gpt-4o-2024-08-06 for gpt-4o.
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

// reported charges the cost that the answer reports, in its body or its headers, if that is
// higher. If neither its name nor the provider says that it is in USD, it is believed only within the
// hold of a call whose tokens are not known exactly.
func (b *bill) reported(a wire.Answer) {
	r, p := b.result, b.plan.Target.Provider
	cost := max(a.CostUSD, b.told)
	if p.ReportsUSD() || r.Estimated && a.Cost <= int64(b.hold.Max.Cost) {
		cost = max(cost, a.Cost)
	}
	by := pricing.Nano(cost) - r.Cost
	if p.ReportedCost == providers.IgnoreCost || by <= 0 || r.void() {
		return
	}
	r.more(ReportedCost, by)
	if r.Split.Total() == r.Cost {
		r.Split.Fees += by
	}
	r.Cost = pricing.Nano(cost)
}

// few is how many tokens two counts of one answer may differ by.
const few = 16

// mostCount returns the largest count of an answer's text that is consistent with the
// output limit.
func (b *bill) mostCount() int64 {
	if b.plan.Request.Echo { // the text includes the prompt
		return math.MaxInt64
	}
	n := b.plan.Output + few*b.plan.Request.Choices()
	if _, factor := tokenizer.Multiplier(b.plan.Target.Model); factor != 1000 || b.plan.hidesOutput() {
		n += n / 2 // a non-public tokenizer, or text that is not all of the output
	}
	return n
}

// overrun returns the error shown to the caller of an answer that was cut off because the
// provider exceeded its output limit.
func (c *Call) overrun() *wire.Error {
	return wire.BadGateway(fmt.Sprintf("The provider exceeded the output limit of %d tokens, the maximum reserved for "+
		"this call. The answer above was cut off and is incomplete", c.Plan.Output), nil)
}

// tellUnderpriced counts what a call cost above its price, and logs it once per model and
// reason.
func (c *Call) tellUnderpriced() {
	for why, by := range c.Result.Underpriced {
		g, model := c.guard, c.Plan.Price.Model
		// A metric, not the ledger.
		g.metrics.underpriced.WithLabelValues(c.Plan.Target.Pool, string(why)).Add(by.Float())
		_, told := g.told.LoadOrStore(string(why)+" "+c.Plan.Target.Provider.ID+" "+model, true)
		if !told {
			g.log.Warn("call cost more than its price", "reason", string(why),
				"provider", c.Plan.Target.Provider.ID, "model", model,
				"answered", c.Result.Model, "more", by.String(), "call", c.ID)
		}
	}
}
