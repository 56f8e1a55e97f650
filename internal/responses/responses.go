// Package responses lets /v1/responses be served by a provider that speaks chat
// completions only: it writes the request as one of chat, and the answer, whole
// or as a stream, as one of Responses.
//
// It copies JSON strings as they stand and decodes nothing it does not have to.
// What chat has no word for is refused with the name of the member at fault;
// nothing that would change the answer is left out in silence, but for hidden
// reasoning of earlier turns, which chat has no place for. It keeps nothing and
// does no I/O of its own.
package responses

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/llmguard/llmguard/internal/wire"
)

// Turn is an earlier response of a conversation, as it was kept: raw JSON arrays
// of items.
type Turn struct{ Input, Output []byte }

// NewID returns a new id of the form OpenAI's have: a prefix such as "resp_" and
// 48 hexadecimal digits.
func NewID(prefix string) string {
	var raw [24]byte
	rand.Read(raw[:]) // never fails: the runtime aborts the process instead
	return prefix + hex.EncodeToString(raw[:])
}

// refuse says that chat has no word for something.
func refuse(param, what string) error {
	return wire.BadRequest(param, "unsupported_parameter",
		"%s cannot be used with this model: its provider speaks chat completions only, into which this proxy translates, "+
			"and they have no word for it", what)
}

// Param is the member of Responses that a provider's error is about, which names
// the one of chat.
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

// head splits a param behind its first name. The places of messages are not
// those of items, so they are left out.
func head(param string) (name, rest string) {
	for i := range len(param) {
		if param[i] == '[' || param[i] == '.' {
			return param[:i], ""
		}
	}
	return param, ""
}
