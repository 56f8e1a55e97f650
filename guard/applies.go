package guard

import (
	"slices"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/providers"
)

// Applying returns the limits that count a call, by its caller, its endpoint, and its model
// under any of its names, so that an alias does not bypass a limit. All such decisions are
// made here.
func Applying(limits []budget.Limit, c ledger.Call, models ...string) []budget.Limit {
	other := func(l budget.Limit) bool {
		named := slices.ContainsFunc(models, func(m string) bool { return providers.MatchAny(l.Models, m) })
		return !named || !l.Counts(c) || !providers.MatchAny(l.Endpoints, c.Endpoint)
	}
	if !slices.ContainsFunc(limits, other) {
		return slices.Clip(limits) // the usual case
	}
	return slices.DeleteFunc(slices.Clone(limits), other)
}

// applying returns the limits of an org or a spend cap that count the plan's call.
// Concurrency limits do not count calls that the provider's Batch API runs, or that llmguard does
// not send, because nothing renews their place.
func (p *Plan) applying(limits []budget.Limit) []budget.Limit {
	c := p.Caller.subject()
	c.Endpoint = string(p.Request.Endpoint)
	out := Applying(limits, c, p.Request.Model, p.Target.Model)
	if p.Caller.Batched || p.Request.Endpoint == HoldEndpoint {
		out = slices.DeleteFunc(slices.Clone(out), func(l budget.Limit) bool { return l.Metric == budget.Concurrency })
	}
	return out
}

// capping returns the spend caps that apply to a call, each reduced to its applying limits:
// the provider's caps before the deployment's, which all calls share.
func (p *Plan) capping(caps []budget.Cap) []budget.Cap {
	var out []budget.Cap
	for _, provider := range slices.Compact([]string{p.Target.Provider.ID, ""}) {
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

// subject returns the caller as limits see it.
func (c Caller) subject() ledger.Call {
	return ledger.Call{Org: c.Org.ID, User: c.User, Key: c.Key, IP: c.IP, Labels: c.Labels, Run: c.Run}
}

// limits returns the limits of the caller's user and key, and those of its runs.
func (c *Caller) limits() []budget.Limit {
	limits := c.Org.LimitsFor(c.User, c.Key)
	if len(c.Runs) > 0 {
		limits = slices.Clone(limits)
		for i := range c.Runs {
			limits = append(limits, c.Runs[i].Limits()...)
		}
	}
	return limits
}
