package wire

import "net/http"

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
