// Package gemini is the dialect of Gemini's endpoint for OpenAI's clients.
package gemini

import (
	"net/url"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers/dialect"
	"github.com/llmguard/llmguard/providers/openai"
)

// Dialect counts thoughts, which are billed as output, only in the total, and has no responses.
type Dialect struct{ openai.Dialect }

// Name implements dialect.Dialect.
func (Dialect) Name() string { return "gemini" }

// System implements dialect.Dialect.
func (Dialect) System() string { return "gcp.gemini" }

// Effect implements dialect.Dialect: Gemini refuses members that it does not know.
func (Dialect) Effect(string) dialect.Effect { return dialect.Unknown }

// Usage accepts a total that exceeds its parts.
func (Dialect) Usage(_ wire.Endpoint, _ []byte, a *wire.Answer) {
	if a.Hidden {
		a.Fault = ""
	}
}

// Wires implements dialect.Dialect.
func (Dialect) Wires(*url.URL) []wire.Endpoint { return openai.ChatOnly }

// Batches implements dialect.Dialect. Gemini's has another form.
func (Dialect) Batches(dialect.BatchClient) dialect.Batches { return nil }
