// Package azure is the dialect of Azure OpenAI.
package azure

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/llmguard/llmguard/providers/dialect"
	"github.com/llmguard/llmguard/providers/openai"
)

// Dialect sends the credential as api-key, and has the deployment and the version of the API in the URL. It
// always takes both names of the output limit.
type Dialect struct{ openai.Dialect }

// Name implements dialect.Dialect.
func (Dialect) Name() string { return "azure" }

// System implements dialect.Dialect.
func (Dialect) System() string { return "azure.ai.openai" }

// Request implements dialect.Dialect.
func (Dialect) Request(r *http.Request, c dialect.Call) error {
	path, query := address(c)
	openai.Join(r.URL, path)
	r.URL.RawQuery = query
	if c.Account.Key != "" {
		r.Header["Api-Key"] = []string{c.Account.Key}
	}
	return nil
}

// address returns the path and the query of a call, below the resource's root. Azure's v1 API has OpenAI's paths; the
// older one has the deployment in them.
func address(c dialect.Call) (path, query string) {
	a := c.Account
	if a.APIVersion == "" {
		return "/openai/v1" + c.Path, c.Query
	}
	query = "api-version=" + url.QueryEscape(a.APIVersion)
	if c.Query != "" {
		query += "&" + c.Query
	}
	if c.Model == "" || strings.HasPrefix(c.Path, "/responses") { // these are paths of the resource
		return "/openai" + c.Path, query
	}
	return "/openai/deployments/" + dialect.Segment(cmp.Or(a.Deployments[c.Model], c.Model)) + c.Path, query
}

// LimitFields implements dialect.Dialect.
func (Dialect) LimitFields(*url.URL) []string { return openai.BothLimits }

var free = dialect.Free("user_security_context", "")

// Effect implements dialect.Dialect.
func (Dialect) Effect(name string) dialect.Effect { return free[name] }

// Batches implements dialect.Dialect.
func (Dialect) Batches(dialect.BatchClient) dialect.Batches { return nil }

// Names returns the name of the resource, which is the first part of the host.
func (Dialect) Names(a dialect.Account) []string {
	host := a.BaseURL.Hostname()
	resource, _, ok := strings.Cut(host, ".")
	if !ok || net.ParseIP(host) != nil {
		return nil
	}
	return []string{resource}
}

// Settings implements dialect.Dialect.
func (Dialect) Settings() []string { return []string{"api_version", "deployments"} }

const example = "end it with the resource, such as https://NAME.openai.azure.com"

// Check implements dialect.Dialect.
func (Dialect) Check(a dialect.Account) []dialect.Problem {
	var found []dialect.Problem
	if a.APIVersion == "" && len(a.Deployments) > 0 {
		found = append(found, dialect.Problem{
			Field: "deployments",
			Text: "needs api_version; without it calls go to Azure's v1 API, which takes the deployment as model: " +
				"use model_map",
		})
	}
	path := strings.TrimRight(a.BaseURL.Path, "/")
	if strings.Contains(path, "/openai") {
		found = append(found, dialect.Problem{Field: "base_url", Text: "has too many path segments; " + example})
	}
	for model, name := range a.Deployments {
		if !deployment.MatchString(name) {
			text := fmt.Sprintf("%.60q is not a deployment name", name)
			found = append(found, dialect.Problem{Field: "deployments", Member: model, Text: text})
		}
	}
	if twice := openai.VersionTwice(a); twice != nil {
		return append(found, twice...)
	}
	if openai.IsVersion(path[strings.LastIndexByte(path, '/')+1:]) {
		found = append(found, dialect.Problem{
			Field:  "base_url",
			Text:   "ends with " + path + ", and kind azure appends /openai/v1 or /openai/deployments",
			Advice: "E" + example[1:] + ".",
		})
	}
	return found
}

var deployment = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
