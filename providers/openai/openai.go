// Package openai is the dialect of OpenAI's API itself, and of the many servers that have the same one: vLLM, Ollama,
// OpenRouter, Groq and others.
package openai

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers/dialect"
)

// Dialect implements dialect.Dialect. Other dialects embed it.
type Dialect struct{}

// Name implements dialect.Dialect.
func (Dialect) Name() string { return "openai" }

// System implements dialect.Dialect.
func (Dialect) System() string { return "" }

// Request sends the credential as a bearer token.
func (Dialect) Request(r *http.Request, c dialect.Call) error {
	Join(r.URL, c.Path)
	r.URL.RawQuery = c.Query
	if c.Account.Key != "" {
		r.Header["Authorization"] = []string{"Bearer " + c.Account.Key}
	}
	return nil
}

// Join appends a path to a base URL.
func Join(base *url.URL, path string) {
	base.Path = strings.TrimSuffix(base.Path, "/") + path
	if base.RawPath != "" {
		base.RawPath = strings.TrimSuffix(base.RawPath, "/") + path
	}
}

// Response implements dialect.Dialect.
func (Dialect) Response(*http.Response, dialect.Call) error { return nil }

// Forwards implements dialect.Dialect.
func (Dialect) Forwards(header string) bool {
	return header == "Openai-Beta" || header == "X-Client-Request-Id"
}

// parameters are the query parameters of OpenAI's API that a caller may send. Others might select the version of
// the API or a credential.
var parameters = []string{
	"after", "before", "filter", "include", "include[]", "include_obfuscation", "limit", "order", "purpose",
	"starting_after", "stream",
}

// Parameters implements dialect.Dialect.
func (Dialect) Parameters(name string) bool { return slices.Contains(parameters, name) }

// Edits asks for the usage of a stream.
func (Dialect) Edits(r *wire.Request) []wire.Edit {
	if !HasStreamOptions(r) || !r.Stream || r.IncludeUsage {
		return nil
	}
	return []wire.Edit{{Name: "stream_options.include_usage", JSON: []byte("true")}}
}

// HasStreamOptions reports whether a stream has usage only if stream_options ask for it.
func HasStreamOptions(r *wire.Request) bool {
	return r.Endpoint.Traits().Chunks
}

const host = "api.openai.com"

// LimitFields are known of OpenAI itself.
func (Dialect) LimitFields(base *url.URL) []string {
	if name := base.Hostname(); name == host || strings.HasSuffix(name, "."+host) {
		return BothLimits
	}
	return nil
}

// BothLimits are the older and the newer name of a chat's output limit.
var BothLimits = []string{"max_tokens", "max_completion_tokens"}

// Usage implements dialect.Dialect.
func (Dialect) Usage(wire.Endpoint, []byte, *wire.Answer) {}

// chatOnly are the hosts of this dialect whose API has no /responses.
var chatOnly = []string{"api.deepseek.com", "api.together.xyz", "api.mistral.ai", "generativelanguage.googleapis.com"}

// Wires implements dialect.Dialect.
func (Dialect) Wires(base *url.URL) []wire.Endpoint {
	if slices.Contains(chatOnly, base.Hostname()) {
		return ChatOnly
	}
	return []wire.Endpoint{wire.ChatCompletions, wire.Responses}
}

// ChatOnly are the wires of a provider that has no /responses.
var ChatOnly = []wire.Endpoint{wire.ChatCompletions}

// SplitsQuota implements dialect.Dialect.
func (Dialect) SplitsQuota() bool { return false }

// Region returns eu for eu.api.openai.com.
func (Dialect) Region(base *url.URL) string {
	region, regional := strings.CutSuffix(base.Hostname(), "."+host)
	if !regional {
		return ""
	}
	return region
}

// Names implements dialect.Dialect.
func (Dialect) Names(dialect.Account) []string { return nil }

// Settings implements dialect.Dialect.
func (Dialect) Settings() []string { return nil }

// Check implements dialect.Dialect.
func (Dialect) Check(a dialect.Account) []dialect.Problem {
	return CheckVersion(a, "/chat/completions")
}

// CheckVersion warns of a base URL that has no version, or has it twice. call is the path of a call below it.
func CheckVersion(a dialect.Account, call string) []dialect.Problem {
	if strings.Trim(a.BaseURL.Path, "/") == "" {
		root := strings.TrimRight(a.BaseURL.String(), "/")
		return []dialect.Problem{{
			Field: "base_url", Text: "has no path: calls go to " + root + call,
			Advice: "End it with the version segment, such as " + root + "/v1.",
		}}
	}
	return VersionTwice(a)
}

// VersionTwice warns of a base URL that ends with the version twice.
func VersionTwice(a dialect.Account) []dialect.Problem {
	parts := strings.Split(strings.Trim(a.BaseURL.Path, "/"), "/")
	if n := len(parts); n < 2 || !IsVersion(parts[n-1]) || parts[n-1] != parts[n-2] {
		return nil
	}
	return []dialect.Problem{{
		Field: "base_url", Text: "ends with the version segment twice: " + a.BaseURL.Path,
		Advice: "End it with one, such as https://api.openai.com/v1.",
	}}
}

// IsVersion reports whether a segment of a path names a version of an API.
func IsVersion(segment string) bool {
	return len(segment) > 1 && segment[0] == 'v' && segment[1] >= '1' && segment[1] <= '9'
}
