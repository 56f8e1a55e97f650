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

// priorities converts the priorities of an org, its users, keys and models. Package config has checked
// them.
func priorities(o *config.Org) guard.Priorities {
	of := func(text string) quota.Priority {
		p, _ := quota.ParsePriority(text)
		return p
	}
	out := guard.Priorities{
		Most: of(o.MaxPriority), Users: map[string]quota.Priority{}, Keys: map[string]quota.Priority{},
	}
	for _, u := range o.Users {
		if u.Priority != "" {
			out.Users[u.ID] = of(u.Priority)
		}
		for _, k := range u.Keys {
			if k.Priority != "" {
				out.Keys[k.ID] = of(k.Priority)
			}
		}
	}
	longestFirst := func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }
	for _, pattern := range slices.SortedFunc(maps.Keys(o.ModelPriority), longestFirst) {
		out.Models = append(out.Models, guard.ModelPriority{Pattern: pattern, Priority: of(o.ModelPriority[pattern])})
	}
	return out
}
