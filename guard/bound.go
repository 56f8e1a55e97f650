package guard

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// Bound is how much the limits of an org, and the spend caps, let it spend.
type Bound struct {
	// Hour is the most it can spend in one clock hour under its cost limits alone;
	// Unlimited if no cost limit bounds everything. See [budget.Shape.MostPerHour]. The
	// bounds of users, and of the keys of a user, add up unless a common limit bounds
	// them.
	Hour pricing.Nano
	// None reports that the org can make calls that no limit on cost, tokens or
	// requests counts.
	None bool
	// Users are, if None is set, the users who can make such calls, in order; empty
	// means all.
	Users []string
}

// HourText formats what the org can spend in an hour. usd formats an amount.
func (b Bound) HourText(usd func(pricing.Nano) string) string {
	switch {
	case b.Hour != Unlimited:
		return usd(b.Hour)
	case b.None:
		return "unbounded"
	}
	return "limited only by tokens or requests"
}

// Unlimited is the Hour of an org without a bounding cost limit.
const Unlimited = pricing.Nano(math.MaxInt64)

// Bound returns what an org can spend under the limits in force at a time. keys are the ids
// of the working keys, by user. Only enforced limits count. Limits for certain models count
// if together they cover the models that the org may use; limits for certain endpoints, or
// per address, bound nothing.
func (p *Policy) Bound(o *Org, keys map[string][]string, at time.Time) Bound {
	if o.Disabled {
		return Bound{}
	}
	b := bounder{org: o, at: at, models: o.Models}
	if len(b.models) == 0 {
		b.models = []string{"*"}
	}
	all := p.capped(&b).least(b.of(o.Limits, budget.Org, ""))
	each, open := b.users(keys)
	all = all.least(each)
	out := Bound{Hour: pricing.Nano(all.hour), None: all.none}
	if all.none && len(open) < len(keys) {
		out.Users = open
	}
	return out
}

// most is what limits admit in an hour.
type most struct {
	hour int64 // nano-USD; math.MaxInt64: unbounded
	none bool  // nothing is counted
}

func (m most) least(o most) most { return most{min(m.hour, o.hour), m.none && o.none} }

func (m most) plus(o most) most { return most{sum(m.hour, o.hour), m.none || o.none} }

func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

var unbound = most{math.MaxInt64, true}

// bounder evaluates the limits of one org.
type bounder struct {
	org    *Org
	models []string // patterns of the models it may use
	at     time.Time
}

// users adds up what the users can spend and lists those without a bound. If there are no
// users, the result is for a single one.
func (b *bounder) users(keys map[string][]string) (all most, open []string) {
	if len(keys) == 0 {
		return b.user("", nil), nil
	}
	groups := map[string]most{}
	for _, user := range slices.Sorted(maps.Keys(keys)) {
		group := b.org.Groups[user]
		one, shared := b.user(user, keys[user]), b.of(b.org.LimitsFor(user, ""), budget.UserGroup, group)
		if one.none && shared.none {
			open = append(open, user)
		}
		if _, begun := groups[group]; !begun {
			groups[group] = most{}
		}
		groups[group] = groups[group].plus(one)
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		limits := b.org.Limits // of users without a group
		if group != "" {
			limits = b.org.GroupLimits[group]
		}
		all = all.plus(groups[group].least(b.of(limits, budget.UserGroup, group)))
	}
	return all, open
}

// user returns what a user can spend, under the limits of the user and of all the user's
// keys.
func (b *bounder) user(id string, keys []string) most {
	limits := b.org.LimitsFor(id, "")
	own, each := b.of(limits, budget.User, id), most{}
	if len(keys) == 0 {
		return own.least(b.of(limits, budget.Key, ""))
	}
	var planned most
	for _, key := range keys {
		if with, ok := b.org.PlanLimits[key]; ok { // instead of the user's
			planned = planned.plus(b.of(with, budget.Key, key).least(b.of(with, budget.User, id)))
			continue
		}
		each = each.plus(b.of(limits, budget.Key, key))
	}
	return own.least(each).plus(planned)
}

// of returns what the limits of one kind of subject admit for one such subject.
func (b *bounder) of(limits []budget.Limit, subject budget.Subject, id string) most {
	all, parts := unbound, make([]most, len(b.models))
	for i := range parts {
		parts[i] = unbound
	}
	for _, l := range limits {
		if l.Subject != subject || l.Only != "" && l.Only != id || !enforced(l.Mode) || l.Metric == budget.Concurrency ||
			len(l.Endpoints) > 0 && !slices.Contains(l.Endpoints, "*") {
			continue
		}
		one := b.one(l, id)
		covers := func(m string) bool { return slices.Contains(l.Models, m) || providers.MatchAny(l.Models, m) }
		if !slices.ContainsFunc(b.models, func(m string) bool { return !covers(m) }) {
			all = all.least(one)
			continue
		}
		for i, m := range b.models {
			if covers(m) {
				parts[i] = parts[i].least(one)
			}
		}
	}
	var together most
	for _, part := range parts {
		together = together.plus(part)
	}
	return all.least(together)
}

func (b *bounder) one(l budget.Limit, id string) most {
	if l.Metric != budget.Cost {
		return most{hour: math.MaxInt64}
	}
	who := ledger.Call{Org: b.org.ID, User: id, Key: id, IP: id}
	return most{hour: l.Shape.MostPerHour(l.AmountFor(who, b.at))}
}

// capped returns what the spend caps let the org spend: the deployment's cap, or those of
// all its providers together.
func (p *Policy) capped(b *bounder) most {
	whole, by := unbound, map[string]most{}
	for _, c := range p.Caps {
		one := b.of(c.Limits, budget.Org, "")
		if c.Provider == "" {
			whole = whole.least(one)
		} else {
			by[c.Provider] = one
		}
	}
	var each most
	for _, provider := range p.Providers.All() {
		if !providers.MatchAny(b.org.Providers, provider.ID) {
			continue
		}
		one, ok := by[provider.ID]
		if !ok {
			one = unbound
		}
		each = each.plus(one)
	}
	return whole.least(each)
}

// namedUsers is how many users a warning names.
const namedUsers = 5

// Warning describes that nothing bounds what an org, or some of its users, can spend.
func (b Bound) Warning(org string) string {
	if len(b.Users) == 0 {
		return "nothing bounds what org " + org +
			" can spend: no limit of cost, tokens or requests is enforced for all its calls"
	}
	count, names := "1 user", strings.Join(b.Users[:min(namedUsers, len(b.Users))], ", ")
	if n := len(b.Users); n > 1 {
		count = fmt.Sprintf("%d users", n)
	}
	if n := len(b.Users) - namedUsers; n > 0 {
		names += fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("nothing bounds what %s of org %s can spend: %s", count, org, names)
}

// BoundFix returns how to fix a missing bound.
func BoundFix(org string) string {
	return "Set a limit: llmguard limits set month --org " + org +
		" --amount '$100' --calendar month. For every org: --org all, or defaults.limits in the file."
}
