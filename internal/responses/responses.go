// Package responses is the wire of /v1/responses, for callers whose provider does not have it. It reads
// requests to the neutral form, and writes answers, plain or streamed, from it.
//
// It copies JSON strings unchanged and decodes as little as possible. A request that the provider's
// wire has no equivalent for is rejected with the name of the member. Nothing that would change the
// answer is dropped silently, except hidden reasoning of earlier turns, which the neutral form
// has no place for. The package stores nothing and does no I/O of its own.
package responses

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"

	"github.com/llmguard/llmguard/internal/neutral"
)

type raw = neutral.Raw

// Turn is an earlier response of a conversation, as stored: raw JSON arrays of items.
type Turn struct{ Input, Output []byte }

// NewID returns a new id in OpenAI's format: a prefix such as "resp_" and 48 hexadecimal
// digits.
func NewID(prefix string) string {
	var raw [24]byte
	rand.Read(raw[:]) // never fails: the runtime would abort the process
	return prefix + hex.EncodeToString(raw[:])
}

// Param returns the member of Responses for a field of a neutral request, or another name unchanged.
func Param(field string) string { return cmp.Or(params[field], field) }

var params = map[string]string{
	neutral.ParamMessages: "input", neutral.ParamLimit: "max_output_tokens", neutral.ParamFormat: "text.format",
	neutral.ParamEffort: "reasoning.effort",
}
