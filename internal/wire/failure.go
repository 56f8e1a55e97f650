package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// IsAnswer reports whether an HTTP status is one with which a provider answers a call. Without
// content (204, 205), in part (206) or after a change of protocol (101), there is no answer.
func IsAnswer(status int) bool {
	return status >= http.StatusOK && status <= http.StatusNonAuthoritativeInfo
}

// ParseError reads a provider's error in any of the forms in shapes_error.go. An error
// without a message gets one that says so. The Status of the result is that of the answer or, if that
// is not an error's, the one that the error names, else 502. standard reports whether the answer has
// the form that every SDK understands (docs/errors.md, Error bodies); then the result has its members,
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
		e.Message, e.Type, e.Param, e.Code, e.Relayed = *s.Message, *s.Type, s.Param, s.Code, true
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
		e.Code, e.Relayed = doc.code, true
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

// ParseRetryDelay returns the wait in the google.rpc.RetryInfo of an error's body, and whether there is
// one. The maximum is a year.
func ParseRetryDelay(body []byte) (time.Duration, bool) {
	if len(body) == 0 {
		return 0, false
	}
	var doc errorDocument
	doc.read(body)
	text, isSeconds := strings.CutSuffix(doc.delay, "s")
	d, ok := parseUnits(text, time.Second)
	return d, ok && isSeconds
}

// RefusesAccount reports whether a provider's error says that the account has no money left or that its
// credential is refused, so that every call would fail in the same way. body may be cut off.
func RefusesAccount(status int, body []byte) bool {
	if body == nil {
		return false
	}
	var doc errorDocument
	doc.read(body)
	known := doc.says(accountCodes)
	switch status {
	case http.StatusUnauthorized:
		return known || !doc.says(narrowCodes)
	case http.StatusForbidden, http.StatusBadRequest:
		return known || doc.spent(status)
	}
	return doc.spent(status) && !bytes.Contains(body, []byte("fewer max_tokens")) // only this call asks for too much
}

// Spent reports whether a provider's error says that the account has no money left for a call.
func Spent(status int, body []byte) bool {
	var doc errorDocument
	doc.read(body)
	return doc.spent(status)
}

// SpentMonth reports whether a provider's error says that the account has used up its month, until the first
// of the next one at 00:00 UTC.
func SpentMonth(status int, body []byte) bool {
	var doc errorDocument
	doc.read(body)
	return status == http.StatusTooManyRequests && doc.detail == monthSpent
}

// errorDocument is what was read of an error.
type errorDocument struct {
	message, kind, code, param string
	number                     int      // an HTTP status; 0 if none is named
	named                      []string // every text that names the error
	delay                      string   // how long to wait; "" if it does not say
	detail                     string   // a code in the details
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
	var doc, inner errorNames
	if json.Unmarshal(first(answer), &doc) != nil {
		return false
	}
	object := first(findFirst(answer, errorObjects))
	if json.Unmarshal(object, &inner) == nil {
		d.message = words(find(object, "message"))
		d.names(inner)
	}
	if d.message == "" {
		d.names(doc)
		d.message = cmp.Or(words(object), words(findFirst(answer, errorTexts)))
	}
	if word := Word(object); d.code == "" && word != "" && !strings.Contains(word, " ") {
		d.code = word
	}
	if text := words(find(answer, miniMaxText)); d.code == "" && statusOf(text) > 0 { // its numbers are MiniMax's own
		d.code = strings.ReplaceAll(text, " ", "_")
	}
	return true
}

// findFirst returns the value of the first shape that is in a document, or nil.
func findFirst(doc []byte, shapes []shape) json.RawMessage {
	for _, s := range shapes {
		if v := find(doc, s.path); given(v) {
			return v
		}
	}
	return nil
}

// find returns the value at a path of names with dots, or nil. If there are lists on its way, it is in the
// first items that have it. Like encoding/json it accepts names in any case.
func find(doc json.RawMessage, path string) json.RawMessage {
	if path == "" {
		return doc
	}
	var list []json.RawMessage
	if json.Unmarshal(doc, &list) == nil {
		for _, item := range list {
			if v := find(item, path); given(v) {
				return v
			}
		}
		return nil
	}
	name, rest, _ := strings.Cut(path, ".")
	var object map[string]json.RawMessage
	if json.Unmarshal(doc, &object) != nil {
		return nil
	}
	if v, ok := object[name]; ok {
		return find(v, rest)
	}
	for other, v := range object {
		if strings.EqualFold(other, name) {
			return find(v, rest)
		}
	}
	return nil
}

// first returns the first item of a JSON array, or any other value itself.
func first(raw []byte) []byte {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		return list[0]
	}
	return raw
}

func (d *errorDocument) names(n errorNames) {
	d.kind = n.Shape
	if kind, _ := n.Type.(string); kind != "" && kind != "error" {
		d.kind = kind
	}
	d.param, _ = n.Param.(string)
	d.code, _ = n.Code.(string)
	google, _ := n.Status.(string)
	d.named = append(d.named, d.kind, d.code, google)
	if google != "" && google == strings.ToUpper(google) {
		d.code = strings.ToLower(google)
	}
	for _, v := range []any{n.Code, n.StatusCode, n.Status} {
		number, err := strconv.Atoi(fmt.Sprint(v))
		if err == nil && number >= http.StatusBadRequest && number <= 599 && d.number == 0 {
			d.number = number
		}
	}
	details := make([]errorDetail, 1)
	if json.Unmarshal(n.Details, &details[0]) != nil {
		_ = json.Unmarshal(n.Details, &details) // of others they are anything
	}
	for _, detail := range details {
		d.named = append(d.named, detail.Reason, detail.ErrorCode)
		d.delay = cmp.Or(d.delay, detail.RetryDelay)
		d.detail = cmp.Or(d.detail, detail.ErrorCode)
	}
}

// spent reports whether the error, with its status, says that the account has no money left.
func (d *errorDocument) spent(status int) bool {
	switch status {
	case http.StatusPaymentRequired: // DeepSeek, OpenRouter
		return true
	case http.StatusTooManyRequests:
		return d.says(spentCodes)
	case http.StatusBadRequest:
		return slices.ContainsFunc(spentTexts, func(text string) bool { return strings.HasPrefix(d.message, text) })
	}
	return false
}

// says reports whether the error has one of the names.
func (d *errorDocument) says(names map[string]bool) bool {
	return slices.ContainsFunc(d.named, func(name string) bool { return names[name] })
}

// status returns the HTTP status that the error names: as a number, or by its code or type.
func (d *errorDocument) status() int {
	return cmp.Or(d.number, statusOf(d.code), statusOf(d.kind), http.StatusBadGateway)
}

// statusOf returns the status that a code or type of an error means, or 0.
func statusOf(name string) int {
	name = strings.NewReplacer("_", "", "-", "", " ", "", ".", "").Replace(strings.ToLower(name))
	for _, one := range statusWords {
		if slices.ContainsFunc(one.words, func(word string) bool { return strings.Contains(name, word) }) {
			return one.status
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
