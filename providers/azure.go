package providers

import (
	"cmp"
	"net/url"
	"strings"
)

// azure returns the path and the query of a call at Azure, below the resource's root. Its v1 API
// has OpenAI's paths; the older one has the deployment in them.
func (p *Provider) azure(r Request, query string) (path, versioned string) {
	if p.APIVersion == "" {
		return "/openai/v1" + r.Path, query
	}
	version := "api-version=" + url.QueryEscape(p.APIVersion)
	if query != "" {
		version += "&" + query
	}
	if r.Model == "" || strings.HasPrefix(r.Path, "/responses") { // these are paths of the resource
		return "/openai" + r.Path, version
	}
	return "/openai/deployments/" + segment(cmp.Or(p.Deployments[r.Model], r.Model)) + r.Path, version
}

// segment makes a name a single path segment: the model is chosen by the caller and must not lead
// to another path. Characters that deployment names cannot have become _.
func segment(name string) string {
	name = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c) {
			return c
		}
		return '_'
	}, name)
	if strings.Trim(name, ".") == "" {
		return "_"
	}
	return name
}
