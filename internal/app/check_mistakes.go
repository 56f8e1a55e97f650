package app

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// longExpired is how long ago a key must have expired to be reported.
const longExpired = 30 * 24 * time.Hour

// CheckMistakes finds settings that are valid but hardly intended, independent of the
// machine.
func CheckMistakes(cfg *config.Config, policy *guard.Policy, now time.Time) []diagnose.Finding {
	m := &mistakes{cfg: cfg, policy: policy, now: now}
	m.pools()
	m.baseURLs()
	m.expiredKeys()
	m.downgrades()
	m.orgCalledAll()
	return m.out
}

type mistakes struct {
	cfg    *config.Config
	policy *guard.Policy
	now    time.Time
	out    []diagnose.Finding
}

func (m *mistakes) add(level diagnose.Level, path, what, fix string) {
	m.out = append(m.out, diagnose.Finding{
		Area: "config", Level: level, What: path + ": " + what, Fix: fix,
		File: m.cfg.Name, Path: path,
	})
}

// pools looks for pools that get no calls because an earlier one matches all of their
// models.
func (m *mistakes) pools() {
	for i, p := range m.cfg.Providers {
		for j, pool := range p.Pools {
			path := fmt.Sprintf("providers[%d].pools[%d]", i, j)
			for _, before := range p.Pools[:j] {
				if takesAll(before.Models, pool.Models) {
					m.add(diagnose.Warning, path,
						fmt.Sprintf("pool %s gets no calls: pool %s, listed before it, matches all of its models", pool.ID, before.ID),
						"Pools are tried in order: put the one with the wider pattern last.")
					break
				}
			}
		}
		if before := m.catchAll(i); before != nil {
			m.add(diagnose.Warning, fmt.Sprintf("providers[%d].id", i),
				fmt.Sprintf("provider %s gets no calls: provider %s, listed before it, matches every model", p.ID, before.ID),
				"Providers are tried in order: name the models of "+before.ID+
					"'s pools, or set providers of the orgs that are to use "+p.ID+".")
		}
	}
}

// takesAll reports whether each pattern of list is one of patterns, or matches one.
func takesAll(patterns, list []string) bool {
	return !slices.ContainsFunc(list, func(one string) bool {
		return !slices.Contains(patterns, one) && !slices.ContainsFunc(patterns, func(p string) bool {
			return providers.Match(p, one)
		})
	})
}

// catchAll returns an earlier provider that takes every call meant for the i-th; nil if
// there is none, or if an org of the file omits it and lists the i-th.
func (m *mistakes) catchAll(i int) *config.Provider {
	for n := range m.cfg.Providers[:i] {
		before := &m.cfg.Providers[n]
		whole := slices.ContainsFunc(before.Pools, func(p config.Pool) bool { return slices.Contains(p.Models, "*") })
		passed := slices.ContainsFunc(m.cfg.Orgs, func(o config.Org) bool {
			return !slices.Contains(o.Providers, before.ID) && slices.Contains(o.Providers, m.cfg.Providers[i].ID)
		})
		if whole && !passed {
			return before
		}
	}
	return nil
}

// baseURLs looks for base URLs with a missing or duplicate version segment.
func (m *mistakes) baseURLs() {
	for i, p := range m.cfg.Providers {
		u, err := url.Parse(p.BaseURL)
		if err != nil {
			continue
		}
		path := fmt.Sprintf("providers[%d].base_url", i)
		switch parts := strings.Split(strings.Trim(u.Path, "/"), "/"); {
		case p.Kind != "azure" && parts[0] == "":
			m.add(diagnose.Warning, path, "has no path: calls go to "+strings.TrimRight(p.BaseURL, "/")+"/chat/completions",
				"End it with the version segment, such as "+strings.TrimRight(p.BaseURL, "/")+"/v1.")
		case len(parts) > 1 && isVersion(parts[len(parts)-1]) && parts[len(parts)-1] == parts[len(parts)-2]:
			m.add(diagnose.Warning, path, "ends with the version segment twice: "+u.Path,
				"End it with one, such as https://api.openai.com/v1.")
		case p.Kind == "azure" && isVersion(parts[len(parts)-1]):
			m.add(diagnose.Warning, path, "ends with "+u.Path+", and kind azure appends /openai/v1 or /openai/deployments",
				"End it with the resource, such as https://NAME.openai.azure.com.")
		}
	}
}

func isVersion(segment string) bool {
	return len(segment) > 1 && segment[0] == 'v' && segment[1] >= '1' && segment[1] <= '9'
}

func (m *mistakes) expiredKeys() {
	expired := func(path, id string, at time.Time) {
		if age := m.now.Sub(at); !at.IsZero() && age > longExpired {
			m.add(diagnose.Warning, path+".expires",
				fmt.Sprintf("key %s expired %d days ago, on %s", id, age/(24*time.Hour), at.UTC().Format(time.DateOnly)),
				"Remove it, or create a new one.")
		}
	}
	for i, k := range m.cfg.Admin.Keys {
		expired(fmt.Sprintf("admin.keys[%d]", i), k.ID, k.Expires)
	}
	for i, o := range m.cfg.Orgs {
		for j, u := range o.Users {
			for n, k := range u.Keys {
				expired(fmt.Sprintf("orgs[%d].users[%d].keys[%d]", i, j, n), k.ID, k.Expires)
			}
		}
	}
}

// downgrades looks for downgrade models that cannot serve a call.
func (m *mistakes) downgrades() {
	for i, o := range m.cfg.Orgs {
		for _, model := range slices.Sorted(maps.Keys(o.Downgrade)) {
			cheaper, path := o.Downgrade[model], fmt.Sprintf("orgs[%d].downgrade.%s", i, model)
			target, err := m.policy.Providers.Resolve(cheaper, o.Providers)
			if err != nil {
				m.add(diagnose.Error, path, "no provider's pool serves "+cheaper+", so no call is downgraded to it",
					"Add it to the models of a pool.")
				continue
			}
			var unknown *pricing.UnknownModelError
			_, err = m.policy.Catalogue.Lookup(target.Provider.ID, target.Model, m.now)
			if errors.As(err, &unknown) && m.policy.UnknownPrice == nil {
				m.add(diagnose.Error, path, cheaper+" has no price, so no call is downgraded to it", "Add it under prices.")
			}
		}
	}
}

// orgCalledAll looks for an org with the name that means every org elsewhere.
func (m *mistakes) orgCalledAll() {
	for i, o := range m.cfg.Orgs {
		if o.ID == "all" {
			m.add(diagnose.Warning, fmt.Sprintf("orgs[%d].id", i),
				"where limits are set, the name all means every org; because this org uses the name, it means only this org",
				"Put limits for every org under defaults.limits.")
		}
	}
}

// LocateFindings fills in the file positions of findings that name a path of the
// configuration. It leaves them empty if the file cannot be read.
func LocateFindings(cfg *config.Config, list []diagnose.Finding) {
	places, err := config.LoadPlaces(cfg.Name)
	for i := range list {
		f := &list[i]
		if f.Path == "" || f.File != cfg.Name || f.Line > 0 || err != nil {
			continue
		}
		at := places.At(f.Path, f.What)
		f.Line, f.Column, f.Excerpt = at.Line, at.Column, at.Excerpt()
	}
}
