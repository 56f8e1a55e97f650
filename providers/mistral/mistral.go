// Package mistral is the dialect of Mistral's API.
package mistral

import (
	"net/url"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers/dialect"
	"github.com/llmguard/llmguard/providers/openai"
)

// Dialect refuses stream_options and max_completion_tokens, always sends usage, and has no responses.
type Dialect struct{ openai.Dialect }

// Name implements dialect.Dialect.
func (Dialect) Name() string { return "mistral" }

// System implements dialect.Dialect.
func (Dialect) System() string { return "mistral_ai" }

// Edits removes what Mistral refuses.
func (Dialect) Edits(r *wire.Request) []wire.Edit {
	if !openai.HasStreamOptions(r) {
		return nil
	}
	return []wire.Edit{{Name: "stream_options"}}
}

// LimitFields implements dialect.Dialect.
func (Dialect) LimitFields(*url.URL) []string { return []string{"max_tokens"} }

var free = dialect.Free(
	"document_image_limit document_page_limit output_dimension output_dtype random_seed safe_prompt", "prompt_mode",
)

// Effect implements dialect.Dialect.
func (Dialect) Effect(name string) dialect.Effect { return free[name] }

// Wires implements dialect.Dialect.
func (Dialect) Wires(*url.URL) []wire.Endpoint { return openai.ChatOnly }

// Batches implements dialect.Dialect. Mistral's has another form.
func (Dialect) Batches(dialect.BatchClient) dialect.Batches { return nil }
