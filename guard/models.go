package guard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
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
	found, at := map[string]Model{}, time.Now()
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
	return slices.SortedFunc(maps.Values(found), func(a, b Model) int { return strings.Compare(a.ID, b.ID) })
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
	if _, err := pl.policy.Load().price(t, time.Now()); err != nil {
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

// Unmatched returns what is wrong with a name or pattern of models that matches no model known from prices and
// providers, and what to write instead. It is empty if there is such a model, or if one may be priced as unknown.
func (p *Policy) Unmatched(pattern string) string {
	head, _, open := strings.Cut(pattern, "*")
	if t, err := p.Providers.Resolve(pattern, nil); err == nil && !open && p.Priced(t) {
		return ""
	}
	begins := func(prefix string) bool { // of names that an entry prices
		return strings.HasPrefix(head, prefix) || open && head != "" && strings.HasPrefix(prefix, head)
	}
	entries := p.Catalogue.Entries()
	if slices.ContainsFunc(entries, func(e pricing.Entry) bool { return slices.ContainsFunc(e.Prefixes, begins) }) {
		return ""
	}
	known := append(pricing.ModelNames(entries, ""), wire.DefaultModeration)
	for _, provider := range p.Providers.All() {
		known = append(known, provider.Names()...)
	}
	matches := func(pattern string) bool {
		return slices.ContainsFunc(known, func(name string) bool { return providers.Match(pattern, name) })
	}
	meant := strings.ReplaceAll(pattern, ".*", "*")
	wrong := fmt.Sprintf("no known model matches %.100q", pattern)
	switch {
	case matches(pattern):
		return ""
	case meant != pattern && matches(meant):
		return wrong + "; patterns are no regular expressions: * alone matches any characters, so write " + meant
	case p.UnknownPrice != nil || p.pooled(pattern):
		return ""
	}
	near := settings.DidYouMean(strings.Trim(pattern, "*"), known)
	return wrong + cmp.Or(near, "; if the name is right, add its price under prices first")
}

// Priced reports whether calls of a target's model have a price, or are moderations, which are free without one.
func (p *Policy) Priced(t providers.Target) bool {
	ep := wire.ChatCompletions
	if strings.Contains(t.Model, "moderation") {
		ep = wire.Moderations
	}
	_, _, err := p.priceOf(ep, t, time.Now())
	return err == nil
}

// pooled reports whether a pattern is one of a pool's, or narrower.
func (p *Policy) pooled(pattern string) bool {
	return slices.ContainsFunc(p.Providers.All(), func(provider *providers.Provider) bool {
		return slices.ContainsFunc(provider.Pools, func(pool providers.Pool) bool {
			return slices.ContainsFunc(pool.Models, func(m string) bool {
				return m != "*" && providers.Match(m, pattern)
			})
		})
	})
}
