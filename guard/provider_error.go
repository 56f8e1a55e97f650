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

// foreignError converts an error that is not quite in OpenAI's form into that form, so that
// SDKs can parse it: Gemini's list with one error and a number as code, vLLM's and
// Mistral's members at the top level, FastAPI's detail, a string as error. An error without
// a message gets one that says so.
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
		if inner.Status != "" { // Google's name for the code
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
	if text == "" || len(text) > maxForeign || text[0] == '<' { // an HTML page
		return fmt.Sprintf("The provider answered %d without an error this proxy can relay", status)
	}
	return text
}

// words returns a JSON string's text, or the JSON of any other value.
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

// idle reports whether an answer with this status is not billed because the provider
// refused before any work. Before a 408 or any other 5xx it may have worked.
func idle(status int) bool {
	return busy(status) || status >= 300 && status < 500 && status != http.StatusRequestTimeout
}

func busy(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable ||
		status == wire.StatusOverloaded
}

// refused returns the outcome of a call whose provider was idle.
func refused(status int) Outcome {
	if busy(status) {
		return Busy
	}
	return Rejected
}

// unsent reports whether an error means that no byte of the request reached the provider.
func unsent(err error) bool {
	var failed *providers.SendError
	return errors.Is(err, providers.ErrStale) || errors.As(err, &failed) && !failed.Sent
}
