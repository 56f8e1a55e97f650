package config

import (
	"maps"
	"slices"
)

// ranks are the priorities, lowest first.
func ranks() []string { return []string{"low", "normal", "high"} }

// checkPriority checks that nothing in an org has a higher priority than the org.
func checkPriority(m *mistakes, at, priority string, o *Org) {
	most := slices.Index(ranks(), o.MaxPriority)
	if slices.Index(ranks(), priority) > most && most >= 0 {
		m.failAt(at, "%s is above the org's max_priority, %s; set max_priority: %s for org %s", priority, o.MaxPriority,
			priority, o.ID)
	}
}

// checkModelPriority checks the priorities of models.
func checkModelPriority(m *mistakes, path string, o *Org) {
	for _, pattern := range slices.Sorted(maps.Keys(o.ModelPriority)) {
		at, priority := join(path+".model_priority", pattern), o.ModelPriority[pattern]
		if !slices.Contains(ranks(), priority) {
			m.failAt(at, "must be high, normal or low, not %s", quote(priority))
		}
		checkPriority(m, at, priority, o)
	}
}
