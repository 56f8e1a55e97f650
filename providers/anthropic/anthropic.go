// Package anthropic is the dialect of Anthropic's API, which has Messages instead of chat completions.
package anthropic

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers/dialect"
	"github.com/llmguard/llmguard/providers/openai"
)

// Dialect sends the credential as x-api-key, and conversations as Messages.
type Dialect struct{ openai.Dialect }

// Name implements dialect.Dialect.
func (Dialect) Name() string { return "anthropic" }

// System implements dialect.Dialect.
func (Dialect) System() string { return "anthropic" }

// version is the version of the API for callers that name none, such as those of other APIs.
const version = "2023-06-01"

// Request implements dialect.Dialect.
func (Dialect) Request(r *http.Request, c dialect.Call) error {
	openai.Join(r.URL, c.Path)
	r.URL.RawQuery = c.Query
	if c.Account.Key != "" {
		r.Header["X-Api-Key"] = []string{c.Account.Key}
	}
	if len(r.Header["Anthropic-Version"]) == 0 {
		r.Header["Anthropic-Version"] = []string{version}
	}
	return nil
}

// Response names the request as other providers do.
func (Dialect) Response(resp *http.Response, _ dialect.Call) error {
	if id := resp.Header["Request-Id"]; len(id) > 0 {
		resp.Header["X-Request-Id"] = id
	}
	return nil
}

// Forwards are the headers that betas and agents need. Those that choose an account are not among them.
func (Dialect) Forwards(name string) bool {
	return name == "Anthropic-Version" || name == "Anthropic-Beta" || strings.HasPrefix(name, "X-Claude-Code-") ||
		name == "X-Client-Request-Id"
}

// Parameters implements dialect.Dialect: the query selects betas, never an account.
func (Dialect) Parameters(string) bool { return true }

// Edits implements dialect.Dialect.
func (Dialect) Edits(*wire.Request) []wire.Edit { return nil }

// LimitFields implements dialect.Dialect.
func (Dialect) LimitFields(*url.URL) []string { return []string{"max_tokens"} }

// Effect implements dialect.Dialect.
func (Dialect) Effect(string) dialect.Effect { return dialect.Unknown }

// Wires implements dialect.Dialect.
func (Dialect) Wires(*url.URL) []wire.Endpoint { return []wire.Endpoint{wire.Messages} }

// SplitsQuota implements dialect.Dialect.
func (Dialect) SplitsQuota() bool { return true }

// Settings implements dialect.Dialect.
func (Dialect) Settings() []string { return []string{"strict"} }

// Region implements dialect.Dialect.
func (Dialect) Region(*url.URL) string { return "" }

// Check implements dialect.Dialect.
func (Dialect) Check(a dialect.Account) []dialect.Problem { return openai.CheckVersion(a, "/messages") }
