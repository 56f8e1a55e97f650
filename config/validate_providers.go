package config

import (
	"fmt"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/providers"
)

func checkProviders(m *mistakes, cfg *Config) {
	if m.given("providers") && len(cfg.Providers) == 0 {
		m.failAt("providers", "is empty; at least one is needed")
	}
	ids, pools := names{}, names{}
	for i, p := range cfg.Providers {
		path := fmt.Sprintf("providers[%d]", i)
		m.unique(ids, path+".id", p.ID)
		if p.BaseURL != "" {
			checkBaseURL(m, path+".base_url", p.BaseURL)
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
			at := fmt.Sprintf("%s.pools[%d]", path, j)
			if m.given(at) || pools[pool.ID] == "" || ids[p.ID] == path+".id" { // otherwise its provider was reported
				m.unique(pools, at+".id", pool.ID)
			}
			m.patterns(at+".models", pool.Models)
			if pool.MaxPause < time.Second || pool.MaxPause > time.Hour {
				m.failAt(at+".max_pause", "must be from 1s to 1h")
			}
		}
		m.spelled(path+".allow_fields", p.AllowFields)
		prompts := names{}
		for j, prompt := range p.Prompts {
			m.unique(prompts, fmt.Sprintf("%s.prompts[%d].id", path, j), prompt.ID)
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
		if p.APIVersion != "" {
			m.failAt(path+".api_version", "is only for kind azure")
		}
		if len(p.Deployments) > 0 {
			m.failAt(path+".deployments", "is only for kind azure")
		}
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

func checkBaseURL(m *mistakes, path, text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		m.failAt(path, "expected a URL such as https://api.openai.com/v1, got %s", mask(quote(text)))
	case u.User != nil:
		m.failAt(path, "contains a user or password; use api_key or headers")
	case u.RawQuery != "" || u.Fragment != "":
		m.failAt(path, "has a query or fragment; use headers for constant parameters")
	case strings.HasSuffix(u.Path, "/chat/completions"), strings.HasSuffix(u.Path, "/embeddings"),
		strings.HasSuffix(u.Path, "/responses"):
		m.failAt(path, "has too many path segments; end it with the version segment, such as https://api.openai.com/v1")
	}
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// ownHeaders are set by llmguard or by the connection.
var ownHeaders = []string{
	"Accept-Encoding", "Authorization", "Connection", "Content-Length", "Content-Type", "Host",
	"Keep-Alive", "Openai-Organization", "Openai-Project", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func checkHeader(m *mistakes, path, name string) {
	switch canonical := textproto.CanonicalMIMEHeaderKey(name); {
	case !headerName.MatchString(name):
		m.failAt(path, "%s is not a header name", quote(name))
	case canonical == "Authorization":
		m.failAt(path, "put the credential in api_key")
	case slices.Contains(ownHeaders, canonical):
		m.failAt(path, "%s is set by llmguard itself", canonical)
	}
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
			m.failAt(fmt.Sprintf("%s.models[%d]", path, i),
				"no pool of the provider serves the model %q; add it to a pool's models", name)
		}
	}
}
