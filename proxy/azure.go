package proxy

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/llmguard/llmguard/internal/wire"
)

// Azure's clients put the deployment in the path and the version in the query:
// /openai/deployments/{deployment}/chat/completions?api-version=2024-10-21; newer ones call
// /openai/v1/chat/completions.

// fromAzure converts such a request to one of ours and returns the deployment, which is the model,
// whatever the body says. The version is specific to Azure; the provider's configuration has the
// one it needs.
func fromAzure(r *http.Request) (*http.Request, string) {
	path, ok := strings.CutPrefix(strings.TrimLeft(r.URL.Path, "/"), "openai/")
	if !ok {
		return r, ""
	}
	path = strings.TrimLeft(path, "/")
	deployment := ""
	if rest, ok := strings.CutPrefix(path, "deployments/"); ok {
		deployment, path, _ = strings.Cut(rest, "/")
	}
	u := *r.URL
	u.Path = "/" + path
	u.RawPath = ""
	u.RawQuery = withoutVersion(r.URL.RawQuery)
	ours := *r
	ours.URL = &u
	return &ours, deployment
}

// withoutVersion removes api-version from a query and leaves the rest unchanged.
func withoutVersion(query string) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err != nil || plain != "api-version" {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&")
}

// scan scans a request whose path may name the model.
func (b *bodyReader) scan(x *request, ep wire.Endpoint, body []byte) (*wire.Request, error) {
	if x.deployment == "" {
		return wire.Scan(ep, body, b.opts.Scan)
	}
	return wire.ScanFor(ep, x.deployment, body, b.opts.Scan)
}
