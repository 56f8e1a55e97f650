package config

import (
	"fmt"
	"maps"
	"slices"
)

// ranks are the priorities, lowest first.
func ranks() []string { return []string{"low", "normal", "high"} }

// checkPriorities checks that nothing in an org has a higher priority than the org.
func checkPriorities(m *mistakes, path string, o *Org) {
	most := slices.Index(ranks(), o.MaxPriority)
	check := func(at, priority string) {
		if slices.Index(ranks(), priority) > most && most >= 0 {
			m.failAt(at, "%s is above the org's max_priority, %s; set max_priority: %s for org %s", priority, o.MaxPriority,
				priority, o.ID)
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(o.ModelPriority)) {
		at, priority := join(path+".model_priority", pattern), o.ModelPriority[pattern]
		if !slices.Contains(ranks(), priority) {
			m.failAt(at, "must be high, normal or low, not %s", quote(priority))
		}
		check(at, priority)
	}
	for i, p := range o.Plans {
		check(element(path+".plans", i)+".priority", p.Priority)
	}
	for i := range o.Users {
		u, at := &o.Users[i], fmt.Sprintf("%s.users[%d]", path, i)
		check(at+".priority", u.Priority)
		for j, k := range u.Keys {
			check(fmt.Sprintf("%s.keys[%d].priority", at, j), k.Priority)
		}
	}
}
