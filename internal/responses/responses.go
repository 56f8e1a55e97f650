// Package responses lets a provider that supports only chat completions serve /v1/responses. It
// translates the request to chat, and the answer, plain or streamed, to Responses.
//
// It copies JSON strings unchanged and decodes as little as possible. A request that chat has
// no equivalent for is rejected with the name of the member. Nothing that would change the
// answer is dropped silently, except hidden reasoning of earlier turns, which chat has no place
// for. The package stores nothing and does no I/O of its own.
package responses

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/llmguard/llmguard/internal/wire"
)

// Turn is an earlier response of a conversation, as stored: raw JSON arrays of items.
type Turn struct{ Input, Output []byte }

// NewID returns a new id in OpenAI's format: a prefix such as "resp_" and 48 hexadecimal
// digits.
func NewID(prefix string) string {
	var raw [24]byte
	rand.Read(raw[:]) // never fails: the runtime would abort the process
	return prefix + hex.EncodeToString(raw[:])
}

// refuse returns the error for something that chat has no equivalent for.
func refuse(param, what string) error {
	return wire.BadRequest(param, "unsupported_parameter",
		"%s cannot be used with this model: its provider supports only chat completions, which have no equivalent", what)
}

// Param returns the member of Responses that a provider's error is about, given that of chat.
func Param(chat string) string {
	switch name, rest := head(chat); name {
	case "messages":
		return "input" + rest
	case "max_tokens", "max_completion_tokens":
		return "max_output_tokens"
	case "response_format":
		return "text.format"
	case "reasoning_effort":
		return "reasoning.effort"
	}
	return chat
}

// head splits a param after its first name. Indexes of messages differ from those of items, so
// they are dropped.
func head(param string) (name, rest string) {
	for i := range len(param) {
		if param[i] == '[' || param[i] == '.' {
			return param[:i], ""
		}
	}
	return param, ""
}
