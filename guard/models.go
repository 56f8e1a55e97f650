package guard

import (
	"slices"
	"strings"

	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// Model is a model that a caller may name.
type Model struct{ ID, Provider string }

// Models lists the models that a caller may use and that can be routed and priced, sorted
// by name: catalogue entries of the providers' own models, and the names and aliases in the
// configuration.
func (pl *Planner) Models(c Caller) []Model {
	policy := pl.policy.Load()
	vendors := map[string]bool{}
	for _, e := range policy.Catalogue.Entries() {
		vendors[e.Provider] = true
	}
	found, at := map[string]Model{}, now()
	add := func(name, vendor string) {
		if strings.HasPrefix(name, pricing.Service) || allowed(c, name) != nil {
			return
		}
		t, err := policy.Providers.Resolve(name, c.Org.Providers)
		if err != nil || vendor != "" && !sells(t, name, vendor, vendors) {
			return
		}
		if _, err := policy.price(t, at); err == nil {
			found[name] = Model{ID: name, Provider: t.Provider.ID}
		}
	}
	for _, e := range policy.Catalogue.Entries() {
		add(e.Model, e.Provider)
	}
	for _, p := range policy.Providers.All() {
		for _, name := range p.Names() {
			add(name, "")
		}
	}
	out := make([]Model, 0, len(found))
	for _, m := range found {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Model) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Model finds one model by name. The error is the caller's 404.
func (pl *Planner) Model(c Caller, name string) (Model, error) {
	if err := allowed(c, name); err != nil {
		return Model{}, err
	}
	t, err := pl.policy.Load().Providers.Resolve(name, c.Org.Providers)
	if err != nil {
		return Model{}, notFound(name)
	}
	if _, err := pl.policy.Load().price(t, now()); err != nil {
		return Model{}, notFound(name)
	}
	return Model{ID: name, Provider: t.Provider.ID}, nil
}

// sells reports whether a catalogue entry of a vendor is offered at a target: by the vendor
// itself, or by a provider outside the catalogue with a pool whose patterns match the name.
func sells(t providers.Target, name, vendor string, vendors map[string]bool) bool {
	if t.Provider.ID == vendor {
		return true
	}
	if vendors[t.Provider.ID] {
		return false
	}
	for _, pool := range t.Provider.Pools {
		if pool.ID == t.Pool {
			return slices.ContainsFunc(pool.Models, func(p string) bool { return p != "*" && providers.Match(p, name) })
		}
	}
	return false
}
