package config

import (
	"net/url"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/providers/dialect"
)

func checkProviders(m *mistakes, cfg *Config) {
	ids, pools := names{}, names{}
	for i, p := range cfg.Providers {
		path := element("providers", i)
		if ids[p.ID] == "" {
			ids[p.ID] = path + ".id"
		}
		for name := range p.Headers {
			checkHeader(m, join(path+".headers", name), name)
		}
		for alias := range p.ModelMap {
			if strings.ContainsAny(alias, "* \t") {
				m.failAt(join(path+".model_map", alias), "%q is not a model name; an alias refers to one model", alias)
			}
		}
		for j, pool := range p.Pools {
			at := element(path+".pools", j)
			if m.given(at) || pools[pool.ID] == "" || ids[p.ID] == path+".id" { // otherwise its provider was reported
				m.unique(pools, at+".id", pool.ID)
			}
		}
		checkDialectOf(m, path, p)
		checkServed(m, path, p)
		checkSpendCaps(m, path+".spend_caps", p.SpendCaps)
	}
}

// checkDialectOf checks what depends on the provider's dialect.
func checkDialectOf(m *mistakes, path string, p Provider) {
	d := providers.DialectOf(p.Kind)
	if d == nil { // reported
		return
	}
	if p.BatchMode == "provider" && d.Batches(nil) == nil {
		kinds := providers.Kinds(func(d dialect.Dialect) bool { return d.Batches(nil) != nil })
		m.failAt(path+".batch_mode", "provider is only for kind %s", strings.Join(kinds, " or "))
	}
	for _, problem := range p.Problems() {
		if problem.Advice == "" {
			at := join(path, problem.Field)
			if problem.Member != "" {
				at = join(at, problem.Member)
			}
			m.failAt(at, "%s", problem.Text)
		}
	}
}

// Problems returns what the provider's dialect finds wrong with its account.
func (p *Provider) Problems() []dialect.Problem {
	base, err := url.Parse(p.BaseURL)
	if err != nil { // reported
		return nil
	}
	return providers.DialectOf(p.Kind).Check(dialect.Account{
		BaseURL: base, APIVersion: p.APIVersion, Deployments: p.Deployments,
	})
}

// checkServed refuses offered models that no pool serves.
func checkServed(m *mistakes, path string, p Provider) {
	for i, model := range p.Models {
		name := model
		if upstream, ok := p.ModelMap[model]; ok {
			name = upstream
		}
		served := slices.ContainsFunc(p.Pools, func(pool Pool) bool {
			return slices.ContainsFunc(pool.Models, func(pattern string) bool { return providers.Match(pattern, name) })
		})
		if !served {
			m.failAt(element(path+".models", i),
				"no pool of the provider serves the model %q; add it to a pool's models", name)
		}
	}
}
