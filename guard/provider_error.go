package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// foreignError reads an error in a shape that is not quite OpenAI's, and gives it
// that shape, so that SDKs can: Gemini's list with one error and a number as
// code, vLLM's and Mistral's members beside the error, FastAPI's detail, a text
// as error. What has no message gets one that says so.
func foreignError(status int, answer []byte) *wire.Error {
	text := strings.TrimSpace(string(answer))
	var list []json.RawMessage
	if json.Unmarshal(answer, &list) == nil && len(list) > 0 {
		answer = list[0]
	}
	e := &wire.Error{Status: status, Type: errorType(status), Code: "upstream_error"}
	var doc struct {
		Error, Message, Detail json.RawMessage
		Type, Code             any
	}
	if json.Unmarshal(answer, &doc) != nil {
		e.Message = noMessage(status, text)
		return e
	}
	var inner struct {
		Message json.RawMessage
		Type    any
		Code    any
		Status  string
		Param   any
	}
	if json.Unmarshal(doc.Error, &inner) == nil && len(inner.Message) > 0 {
		e.Message = words(inner.Message)
		doc.Type, doc.Code = inner.Type, inner.Code
		if inner.Status != "" { // Google's word for it
			doc.Code = strings.ToLower(inner.Status)
		}
		e.Param, _ = inner.Param.(string)
	}
	for _, part := range []json.RawMessage{doc.Error, doc.Message, doc.Detail} {
		if e.Message == "" {
			e.Message = words(part)
		}
	}
	if e.Message == "" {
		e.Message = noMessage(status, "")
	}
	if kind, ok := doc.Type.(string); ok && kind != "" {
		e.Type = kind
	}
	if code, ok := doc.Code.(string); ok && code != "" {
		e.Code = code
	}
	return e
}

const maxForeign = 1000

func noMessage(status int, text string) string {
	if text == "" || len(text) > maxForeign || text[0] == '<' { // a page for browsers
		return fmt.Sprintf("The provider answered %d without an error this proxy can relay", status)
	}
	return text
}

// words is a text, or the JSON of anything else that is there.
func words(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	if text == "null" || text == "{}" {
		return ""
	}
	if len(text) > maxForeign {
		text = strings.ToValidUTF8(text[:maxForeign], "") + "..."
	}
	return text
}

// idle reports whether an answer of this status is not billed, because the provider
// refused before any work. It may have worked before any other 5xx, and before a 408.
func idle(status int) bool {
	return busy(status) || status >= 300 && status < 500 && status != http.StatusRequestTimeout
}

func busy(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable ||
		status == wire.StatusOverloaded
}

// refused is the outcome of a call whose provider was idle.
func refused(status int) Outcome {
	if busy(status) {
		return Busy
	}
	return Rejected
}

// unsent reports whether an error says that no byte of a request reached the provider.
func unsent(err error) bool {
	var failed *providers.SendError
	return errors.Is(err, providers.ErrStale) || errors.As(err, &failed) && !failed.Sent
}
