package guard

import (
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/quota"
)

// Priorities are the priorities of an org's calls. With the zero value all are normal, except those
// that choose low.
type Priorities struct {
	// Most bounds the priority of all calls of the org.
	Most quota.Priority
	// Users and Keys, by id, have a priority of their own, which also bounds what their calls
	// may choose. That of a key takes precedence.
	Users, Keys map[string]quota.Priority
	// Models have one if neither the key nor the user does. The first that matches applies.
	Models []ModelPriority
}

// ModelPriority is the priority of calls to models that match a pattern.
type ModelPriority struct {
	Pattern  string
	Priority quota.Priority
}

// flex is the service tier whose calls are of low priority.
const flex = "flex"

// Priority returns the priority of a call. chosen is what its request names, or nil; it takes
// precedence over the service tier and is lowered to what is allowed.
func (p *Plan) Priority(chosen *quota.Priority) quota.Priority {
	if p.slowed {
		return quota.Low
	}
	rules := &p.Caller.Org.Priorities
	most := rules.Most
	set, ok := rules.Keys[p.Caller.Key]
	if !ok {
		set, ok = rules.Users[p.Caller.User]
	}
	own := set
	if ok {
		most = min(most, set)
	} else {
		own = rules.ofModel(p.Request.Model)
	}
	switch {
	case chosen != nil:
		own = *chosen
	case p.Request.ServiceTier == flex:
		own = quota.Low
	}
	return min(own, most)
}

func (r *Priorities) ofModel(model string) quota.Priority {
	for _, m := range r.Models {
		if providers.Match(m.Pattern, model) {
			return m.Priority
		}
	}
	return quota.Normal
}
