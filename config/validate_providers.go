package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/providers"
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
		checkAzure(m, path, p)
		if p.BatchMode == "provider" && p.Kind != "openai" {
			m.failAt(path+".batch_mode", "provider is only for kind openai")
		}
		checkServed(m, path, p)
		checkSpendCaps(m, path+".spend_caps", p.SpendCaps)
	}
}

// checkAzure checks the fields for Azure providers.
func checkAzure(m *mistakes, path string, p Provider) {
	if p.Kind != "azure" {
		return
	}
	if p.APIVersion == "" && len(p.Deployments) > 0 {
		m.failAt(path+".deployments",
			"needs api_version; without it calls go to Azure's v1 API, which takes the deployment as model: use model_map")
	}
	if u, err := url.Parse(p.BaseURL); err == nil && strings.Contains(u.Path, "/openai") {
		m.failAt(path+".base_url", "has too many path segments; end it with the resource, such as "+
			"https://NAME.openai.azure.com")
	}
	for model, name := range p.Deployments {
		if !deploymentName.MatchString(name) {
			m.failAt(join(path+".deployments", model), "%s is not a deployment name", quote(name))
		}
	}
}

var deploymentName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

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
