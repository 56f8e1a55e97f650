package app

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/quota"
)

// planPriorities returns the priorities of the plans of an org that have one, by id.
func planPriorities(c *config.Config, o *config.Org) map[string]string {
	out := map[string]string{}
	for _, id := range c.Defaults.PlanIDs(o) {
		if p := c.Defaults.OrgPlan(o, id); p.Priority != "" {
			out[id] = p.Priority
		}
	}
	return out
}

// priorities converts the priorities of an org, its users, keys and models. Package config has checked
// them.
func priorities(c *config.Config, o *config.Org) guard.Priorities {
	of := func(text string) quota.Priority {
		p, _ := quota.ParsePriority(text)
		return p
	}
	out := guard.Priorities{
		Most: of(o.MaxPriority), Users: map[string]quota.Priority{}, Keys: map[string]quota.Priority{},
	}
	planned := planPriorities(c, o)
	for i := range o.Users {
		u := &o.Users[i]
		if p := cmp.Or(u.Priority, planned[c.Defaults.Membership(o, u, nil).Plan]); p != "" {
			out.Users[u.ID] = of(p)
		}
		for j := range u.Keys {
			k := &u.Keys[j]
			if p := cmp.Or(k.Priority, planned[k.Plan]); p != "" {
				out.Keys[k.ID] = of(p)
			}
		}
	}
	longestFirst := func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }
	for _, pattern := range slices.SortedFunc(maps.Keys(o.ModelPriority), longestFirst) {
		out.Models = append(out.Models, guard.ModelPriority{Pattern: pattern, Priority: of(o.ModelPriority[pattern])})
	}
	return out
}
