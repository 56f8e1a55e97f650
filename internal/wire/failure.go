package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// IsAnswer reports whether an HTTP status is one with which a provider answers a call. Without
// content (204, 205), in part (206) or after a change of protocol (101), there is no answer.
func IsAnswer(status int) bool {
	return status >= http.StatusOK && status <= http.StatusNonAuthoritativeInfo
}

// ParseError reads a provider's error in any of the forms that servers use: OpenAI's own, Gemini's
// list with one error and a number as code, vLLM's and Mistral's members at the top level, FastAPI's
// detail, Cloudflare's list of errors, AWS's __type, MiniMax's base_resp, a string as error. An error
// without a message gets one that says so. The Status of the result is that of the answer or, if that
// is not an error's, the one that the error names, else 502. standard reports whether the answer has
// the form that every SDK understands (docs/wire.md, Error bodies); then the result has its members,
// else there is a Code.
func ParseError(status int, answer []byte) (e *Error, standard bool) {
	e = &Error{Status: status, Code: upstreamError}
	var doc errorDocument
	answer = bytes.TrimPrefix(answer, byteOrderMark)
	known := doc.read(answer)
	if status < http.StatusBadRequest || status > 599 {
		e.Status = doc.status()
	}
	if s := doc.standard; s.Message != nil && s.Type != nil {
		e.Message, e.Type, e.Param, e.Code = *s.Message, *s.Type, s.Param, s.Code
		return e, true
	}
	e.Type = typeInvalidRequest
	if e.Status >= http.StatusInternalServerError {
		e.Type = typeServer
	}
	switch text := strings.TrimSpace(string(answer)); {
	case known && doc.message != "":
		e.Message = doc.message
	case known || text == "" || len(text) > maxMessage || text[0] == '<': // an HTML page
		e.Message = fmt.Sprintf("The provider answered %d without an error this proxy can relay", status)
	default:
		e.Message = text
	}
	if doc.kind != "" {
		e.Type = doc.kind
	}
	if doc.code != "" {
		e.Code = doc.code
	}
	e.Param = doc.param
	return e, false
}

// ParseErrorEvent is ParseError for an event of a stream. There always is a Code.
func ParseErrorEvent(event []byte) *Error {
	e, _ := ParseError(http.StatusOK, event)
	e.Code = cmp.Or(e.Code, upstreamError)
	return e
}

// upstreamError is the code of an error that has none.
const upstreamError = "upstream_error"

// errorDocument is what was read of an error.
type errorDocument struct {
	message, kind, code, param string
	number                     int      // an HTTP status; 0 if none is named
	standard                   struct { // an error in OpenAI's form
		Message, Type *string
		Param, Code   string
	}
}

// read returns false if the answer is not a JSON object.
func (d *errorDocument) read(answer []byte) bool {
	own := struct{ Error any }{&d.standard}
	if json.Unmarshal(answer, &own) != nil {
		d.standard.Type = nil
	}
	type within struct{ Error json.RawMessage }
	var doc struct {
		Error, Errors, Message, Detail json.RawMessage
		Response                       within // of an event
		Choices                        []within
		Base                           struct {
			Message json.RawMessage `json:"status_msg"`
		} `json:"base_resp"`
		errorNames
	}
	if json.Unmarshal(first(answer), &doc) != nil {
		return false
	}
	for _, one := range append(doc.Choices, doc.Response, within{doc.Errors}) {
		if !given(doc.Error) {
			doc.Error = one.Error
		}
	}
	doc.Error = first(doc.Error)
	var inner struct {
		Message json.RawMessage
		errorNames
	}
	if json.Unmarshal(doc.Error, &inner) == nil {
		d.message = words(inner.Message)
		d.names(inner.errorNames)
	}
	if d.message == "" {
		d.names(doc.errorNames)
	}
	for _, part := range []json.RawMessage{doc.Error, doc.Message, doc.Detail, doc.Base.Message} {
		if d.message == "" {
			d.message = words(part)
		}
	}
	if word := Word(doc.Error); d.code == "" && word != "" && !strings.Contains(word, " ") {
		d.code = word
	}
	if text := words(doc.Base.Message); d.code == "" && statusOf(text) > 0 { // its numbers are MiniMax's own
		d.code = strings.ReplaceAll(text, " ", "_")
	}
	return true
}

// first returns the first item of a JSON array, or any other value itself.
func first(raw []byte) []byte {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		return list[0]
	}
	return raw
}

// errorNames are the members that name an error.
type errorNames struct {
	Type, Code, Status, Param any
	StatusCode                any    `json:"status_code"`
	Shape                     string `json:"__type"`
}

func (d *errorDocument) names(n errorNames) {
	d.kind = n.Shape
	if kind, _ := n.Type.(string); kind != "" && kind != "error" {
		d.kind = kind
	}
	d.param, _ = n.Param.(string)
	d.code, _ = n.Code.(string)
	if google, _ := n.Status.(string); google != "" && google == strings.ToUpper(google) {
		d.code = strings.ToLower(google)
	}
	for _, v := range []any{n.Code, n.StatusCode, n.Status} {
		number, err := strconv.Atoi(fmt.Sprint(v))
		if err == nil && number >= http.StatusBadRequest && number <= 599 && d.number == 0 {
			d.number = number
		}
	}
}

// status returns the HTTP status that the error names: as a number, or by its code or type.
func (d *errorDocument) status() int {
	for _, status := range []int{d.number, statusOf(d.code), statusOf(d.kind)} {
		if status > 0 {
			return status
		}
	}
	return http.StatusBadGateway
}

// statusWords are parts of the codes and types of errors, in lower case and without separators,
// with the status that they mean. The first one that is found counts.
var statusWords = []struct {
	status int
	words  []string
}{
	{http.StatusUnauthorized, []string{"apikey", "unauth", "authentication"}},
	{http.StatusForbidden, []string{"permission", "forbidden", "accessdenied"}},
	{http.StatusBadRequest, []string{"contextlength", "contextwindow", "contentfilter", "policy", "safety"}},
	{http.StatusPaymentRequired, []string{"billing", "payment", "insufficientbalance", "insufficientcredit"}},
	{http.StatusTooManyRequests, []string{
		"ratelimit", "quota", "toomanyrequests", "resourceexhausted", "slowdown", "throttl", "creditbalance",
		"limitexceeded",
	}},
	{http.StatusServiceUnavailable, []string{"overload", "unavailable", "capacity"}},
	{http.StatusGatewayTimeout, []string{"timeout", "timedout", "deadline"}},
	{http.StatusNotFound, []string{"notfound"}},
	{http.StatusRequestEntityTooLarge, []string{"toolarge"}},
	{http.StatusBadGateway, []string{"badgateway", "upstream"}},
	{http.StatusInternalServerError, []string{"server", "internal", "apierror"}},
	{http.StatusBadRequest, []string{
		"invalid", "badrequest", "unsupported", "unprocessable", "failedprecondition", "image", "mismatch",
	}},
}

// statusOf returns the status that a code or type of an error means, or 0.
func statusOf(name string) int {
	name = strings.NewReplacer("_", "", "-", "", " ", "", ".", "").Replace(strings.ToLower(name))
	for _, one := range statusWords {
		for _, word := range one.words {
			if strings.Contains(name, word) {
				return one.status
			}
		}
	}
	return 0
}

// given reports whether a raw JSON value says that something went wrong: it is there, and not empty.
func given(raw []byte) bool {
	switch string(raw) {
	case "", "null", `""`, "{}", "[]", "false", "0":
		return false
	}
	return true
}

// maxMessage bounds a message that is not in OpenAI's form.
const maxMessage = 1000

// words returns a JSON string's text, or the JSON of any other value.
func words(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	if text == "null" || text == "{}" {
		return ""
	}
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "..."
	}
	return text
}
