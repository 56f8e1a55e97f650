package wire

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Error is an error response in OpenAI's format. All fields except Err are public: they are sent to
// the client. An Error is immutable and may be shared; its JSON form (encoding/json) has everything
// except Err.
type Error struct {
	// Status is the HTTP status.
	Status int `json:"status"`
	// Type is OpenAI's error type, for instance "invalid_request_error".
	Type string `json:"type"`
	// Code and Param are sent as null if empty.
	Code  string `json:"code,omitempty"`
	Param string `json:"param,omitempty"`
	// Message is for the user of the client.
	Message string `json:"message"`
	// Header holds the headers that the status requires: Retry-After, x-should-retry, Connection,
	// Allow. May be nil.
	Header http.Header `json:"header,omitempty"`
	// Relayed reports that Code is the provider's, which docs/errors.md does not explain.
	Relayed bool `json:"relayed,omitempty"`
	// Limit is the state of the limit that refused, if it is not one of a call's limits. May be nil.
	Limit *LimitState `json:"-"`
	// Err is the cause, for logs only.
	Err error `json:"-"`
}

// Error returns status, message and the private cause, for logs.
func (e *Error) Error() string {
	text := strconv.Itoa(e.Status) + " " + e.Message
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.Err }

// JSON returns the error as the body of a response (docs/errors.md, Error bodies).
func (e *Error) JSON() []byte {
	dst := make([]byte, 0, 128+len(e.Message))
	dst = append(dst, `{"error":`...)
	dst = e.appendObject(dst)
	return append(dst, '}')
}

// Object returns the value of the only member of JSON.
func (e *Error) Object() []byte { return e.appendObject(nil) }

// Frame returns the error as the last event of a stream of ep (docs/errors.md, Errors in a stream),
// including the blank line; seq is its number in a stream whose events have numbers.
func (e *Error) Frame(ep Endpoint, seq int64) []byte {
	switch t := ep.Traits(); {
	case t.Numbered:
		return e.numberedFrame(seq)
	case t.Messages:
		return e.messagesFrame()
	}
	dst := make([]byte, 0, 160+len(e.Message))
	dst = append(dst, `data: {"error":`...)
	dst = e.appendObject(dst)
	return append(dst, "}\n\n"...)
}

// numberedFrame combines the flat format that OpenAI documents with the nested one, because some
// clients recognize only one of them.
func (e *Error) numberedFrame(seq int64) []byte {
	dst := make([]byte, 0, 256+2*len(e.Message))
	dst = append(dst, "event: error\ndata: "...)
	dst = append(dst, `{"type":"error","sequence_number":`...)
	dst = strconv.AppendInt(dst, seq, 10)
	dst = append(dst, `,"code":`...)
	dst = appendNullable(dst, e.Code)
	dst = append(dst, `,"message":`...)
	dst = appendQuoted(dst, e.Message)
	dst = append(dst, `,"param":`...)
	dst = appendNullable(dst, e.Param)
	dst = append(dst, `,"error":`...)
	dst = e.appendObject(dst)
	return append(dst, "}\n\n"...)
}

func (e *Error) appendObject(dst []byte) []byte {
	dst = append(dst, `{"message":`...)
	dst = appendQuoted(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = appendQuoted(dst, e.Type)
	dst = append(dst, `,"param":`...)
	dst = appendNullable(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendNullable(dst, e.Code)
	return append(dst, '}')
}

func appendNullable(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendQuoted(dst, s)
}

// appendQuoted appends s as a JSON string; invalid UTF-8 becomes U+FFFD.
func appendQuoted(dst []byte, s string) []byte {
	dst, err := jsontext.AppendQuote(dst, strings.ToValidUTF8(s, "\uFFFD"))
	if err != nil {
		panic("wire: quoting valid UTF-8: " + err.Error())
	}
	return dst
}

// BadRequest returns a 400. param names the invalid member ("max_tokens", "messages[0].content")
// and code is OpenAI's code for the error; both may be empty.
func BadRequest(param, code, format string, args ...any) *Error {
	return &Error{
		Status:  http.StatusBadRequest,
		Type:    typeInvalidRequest,
		Code:    code,
		Param:   param,
		Message: fmt.Sprintf(format, args...),
	}
}

const (
	typeInvalidRequest = "invalid_request_error"
	typeRateLimit      = "rate_limit_error"
	typeQuota          = "insufficient_quota"
	typeUnavailable    = "service_unavailable_error"
	typeServer         = "server_error"
)

// messagesTypes are the types of errors of Anthropic's API by their status.
var messagesTypes = map[int]string{
	http.StatusBadRequest: typeInvalidRequest, http.StatusUnauthorized: "authentication_error",
	http.StatusPaymentRequired: "billing_error", http.StatusForbidden: "permission_error",
	http.StatusNotFound: "not_found_error", http.StatusConflict: "conflict_error",
	http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: typeRateLimit,
	http.StatusServiceUnavailable: "overloaded_error", http.StatusGatewayTimeout: "timeout_error",
	StatusOverloaded: "overloaded_error",
}

// stops are the codes of refusals that only an operator ends.
var stops = map[string]bool{"brake_stopped": true, "approval_required": true, "spending_stopped": true}

// For returns the error as the callers of an API expect it: agents that speak Messages take a 403 for a wrong key,
// and show the text of a 402.
func (e *Error) For(ep Endpoint) *Error {
	if !ep.Traits().Messages || !stops[e.Code] {
		return e
	}
	other := *e
	other.Status = http.StatusPaymentRequired
	return &other
}

// Body returns the error as the body of an answer of ep; id is that of the request.
func (e *Error) Body(ep Endpoint, id string) []byte {
	if !ep.Traits().Messages {
		return e.JSON()
	}
	return e.appendMessages(make([]byte, 0, 192+len(e.Message)), id)
}

// appendMessages appends the error in Anthropic's form, with the members that OpenAI's has beside.
func (e *Error) appendMessages(dst []byte, id string) []byte {
	kind := messagesTypes[e.Status]
	switch {
	case kind == "" && e.Status < http.StatusInternalServerError:
		kind = typeInvalidRequest
	case kind == "":
		kind = "api_error"
	}
	dst = append(dst, `{"type":"error","error":{"type":`...)
	dst = appendQuoted(dst, kind)
	dst = append(dst, `,"message":`...)
	dst = appendQuoted(dst, e.Message)
	dst = append(dst, `,"code":`...)
	dst = appendNullable(dst, e.Code)
	dst = append(dst, `,"param":`...)
	dst = appendNullable(dst, e.Param)
	dst = append(dst, '}')
	if id != "" {
		dst = append(dst, `,"request_id":`...)
		dst = appendQuoted(dst, id)
	}
	return append(dst, '}')
}

// messagesFrame returns the error as the last event of a stream of messages.
func (e *Error) messagesFrame() []byte {
	dst := append(make([]byte, 0, 256+len(e.Message)), "event: error\ndata: "...)
	return append(e.appendMessages(dst, ""), "\n\n"...)
}
