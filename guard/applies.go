package guard

import (
	"slices"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/providers"
)

// Applying picks the limits that count a call: by whose it is, its endpoint, and its model under
// any of its names, as an alias is no way around a limit. It is the one place that decides so.
func Applying(limits []budget.Limit, c budget.Call, models ...string) []budget.Limit {
	other := func(l budget.Limit) bool {
		named := slices.ContainsFunc(models, func(m string) bool { return providers.MatchAny(l.Models, m) })
		return !named || !l.Counts(c) || !providers.MatchAny(l.Endpoints, c.Endpoint)
	}
	if !slices.ContainsFunc(limits, other) {
		return slices.Clip(limits) // as for most calls
	}
	return slices.DeleteFunc(slices.Clone(limits), other)
}

// applying picks those of an org or of a spend cap that count the plan's call. Concurrency of
// what the provider's Batch API runs is the provider's own business.
func (p *Plan) applying(limits []budget.Limit) []budget.Limit {
	c := p.Caller.subject()
	c.Endpoint = string(p.Request.Endpoint)
	out := Applying(limits, c, p.Request.Model, p.Target.Model)
	if p.Caller.Batched {
		out = slices.DeleteFunc(slices.Clone(out), func(l budget.Limit) bool { return l.Metric == budget.Concurrency })
	}
	return out
}

// capping picks the spend caps that concern a call, with those of their limits
// that do: the provider's before the deployment's, which all calls share.
func (p *Plan) capping(caps []budget.Cap) []budget.Cap {
	var out []budget.Cap
	for _, provider := range []string{p.Target.Provider.ID, ""} {
		for _, c := range caps {
			if c.Provider != provider {
				continue
			}
			c.Limits = p.applying(c.Limits)
			if len(c.Limits) > 0 {
				out = append(out, c)
			}
		}
	}
	return out
}

// subject is whom a caller's limits count.
func (c Caller) subject() budget.Call {
	return budget.Call{Org: c.Org.ID, User: c.User, Key: c.Key, IP: c.IP}
}
