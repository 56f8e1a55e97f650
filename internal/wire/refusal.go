package wire

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter is the longest wait that every version of every SDK obeys.
const MaxRetryAfter = 60 * time.Second

// StatusOverloaded is what Anthropic's API answers when it is overloaded: its 503.
const StatusOverloaded = 529

// SetRetryAfter tells the client in h to come back after wait: in whole
// seconds, rounded up, at least one. A wait above a minute is the true one, with the
// advice not to retry, because some SDKs would otherwise retry immediately
// (docs/wire.md, Retry advice).
func SetRetryAfter(h http.Header, wait time.Duration) {
	if wait > MaxRetryAfter {
		h.Set("X-Should-Retry", "false")
	}
	seconds := max(1, int64((wait-1)/time.Second)+1)
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
}

func retryAfter(wait time.Duration) http.Header {
	h := make(http.Header, 2)
	SetRetryAfter(h, wait)
	return h
}

// hopeless matches the words that make some client take a retryable refusal
// for a final one (docs/wire.md, Retry advice).
var hopeless = regexp.MustCompile(`(?i)quotas?|billing|credit balance|out of credits|will reset at`)

// calm rewords a message of a retryable refusal. Its words may come from
// outside: limits and models have names their owners chose.
func calm(message string) string {
	return hopeless.ReplaceAllStringFunc(message, func(word string) string {
		switch strings.ToLower(word) {
		case "quota":
			return "limit"
		case "quotas":
			return "limits"
		case "billing":
			return "charging"
		case "will reset at":
			return "is reset at"
		}
		return "balance"
	})
}

// RateLimited returns a 429 for a call that would fit after wait.
func RateLimited(message string, wait time.Duration) *Error {
	return &Error{
		Status: http.StatusTooManyRequests, Type: typeRateLimit, Code: "rate_limit_exceeded",
		Message: calm(message), Header: retryAfter(wait),
	}
}

// QuotaExceeded returns a 429 for a call that no wait would let through: the
// budget is used up, or the call is larger than the limit (docs/wire.md, Retry advice).
func QuotaExceeded(message string) *Error {
	return &Error{
		Status: http.StatusTooManyRequests, Type: typeQuota, Code: "insufficient_quota",
		Message: message, Header: http.Header{"X-Should-Retry": {"false"}},
	}
}

// Overloaded returns a 503 for a full queue or a server that is shutting down.
func Overloaded(message string, wait time.Duration) *Error {
	return ServiceUnavailable(message, wait, nil)
}

// ServiceUnavailable returns a 503 for something we depend on and cannot
// reach. Cause stays private.
func ServiceUnavailable(message string, wait time.Duration, cause error) *Error {
	return &Error{
		Status: http.StatusServiceUnavailable, Type: typeUnavailable, Code: "server_is_overloaded",
		Message: calm(message), Header: retryAfter(wait), Err: cause,
	}
}

// StoreFull returns a 503 for a store that answers and takes no more: its memory or its
// disk is full. Nothing goes out then, because nothing can be held. Cause stays private.
func StoreFull(wait time.Duration, cause error) *Error {
	return &Error{
		Status: http.StatusServiceUnavailable, Type: typeUnavailable, Code: "store_full",
		Message: "The memory or the disk of the store is full, so nothing is let through until there is room",
		Header:  retryAfter(wait), Err: cause,
	}
}

// BadGateway returns a 502 for a provider that cannot be reached, broke off, or
// answered what we cannot hand on. Cause stays private.
func BadGateway(message string, cause error) *Error {
	return &Error{
		Status: http.StatusBadGateway, Type: typeServer, Code: "upstream_error",
		Message: calm(message), Header: retryAfter(0), Err: cause,
	}
}

// InvalidKey returns a 401. Message must not repeat the key.
func InvalidKey(message string) *Error {
	return &Error{Status: http.StatusUnauthorized, Type: typeInvalidRequest, Code: "invalid_api_key", Message: message}
}

// Forbidden returns a 403 for what a key may not do.
func Forbidden(code, format string, args ...any) *Error {
	return &Error{
		Status: http.StatusForbidden, Type: typeInvalidRequest, Code: code,
		Message: fmt.Sprintf(format, args...),
	}
}

// NotFound returns a 404: for unknown routes ("unknown_url"), for models the
// key may not use or nobody knows ("model_not_found"), and for whatever
// belongs to someone else. Param may be empty.
func NotFound(param, code, format string, args ...any) *Error {
	return &Error{
		Status: http.StatusNotFound, Type: typeInvalidRequest, Code: code, Param: param,
		Message: fmt.Sprintf(format, args...),
	}
}

// MethodNotAllowed returns a 405 that names the allowed methods.
func MethodNotAllowed(method string, allowed []string) *Error {
	list := strings.Join(allowed, ", ")
	return &Error{
		Status: http.StatusMethodNotAllowed, Type: typeInvalidRequest, Code: "method_not_allowed",
		Message: fmt.Sprintf("Method %s is not allowed here; use %s.", clip([]byte(method)), list),
		Header:  http.Header{"Allow": {list}},
	}
}

// TooLarge returns a 413 for a body of more than limit bytes, and closes the
// connection, because the rest of the body is still on its way.
func TooLarge(limit int64) *Error {
	return &Error{
		Status: http.StatusRequestEntityTooLarge, Type: typeInvalidRequest, Code: "request_too_large",
		Message: fmt.Sprintf("The request body is larger than %d bytes.", limit),
		Header:  http.Header{"Connection": {"close"}},
	}
}

// UnsupportedEncoding returns a 415 for a body with a content encoding.
func UnsupportedEncoding(encoding string) *Error {
	return &Error{
		Status: http.StatusUnsupportedMediaType, Type: typeInvalidRequest, Code: "unsupported_content_encoding",
		Message: fmt.Sprintf("Content-Encoding %q is not supported; send the body as it is.", clip([]byte(encoding))),
		Header:  http.Header{"Connection": {"close"}},
	}
}

// NotFinished returns a 409 for a call under the same idempotency key, or a
// job, that still runs. SDKs ask again by themselves.
func NotFinished(message string, wait time.Duration) *Error {
	return &Error{
		Status: http.StatusConflict, Type: typeInvalidRequest, Code: "not_finished",
		Message: calm(message), Header: retryAfter(wait),
	}
}

// Gone returns a 410, which no SDK retries: what was asked for was here and
// will not come back.
func Gone(code, message string) *Error {
	return &Error{Status: http.StatusGone, Type: typeInvalidRequest, Code: code, Message: message}
}

// KeyReused returns a 422 for an idempotency key that came with another body
// before.
func KeyReused() *Error {
	return &Error{
		Status: http.StatusUnprocessableEntity, Type: typeInvalidRequest, Code: "idempotency_key_reused",
		Message: "This Idempotency-Key was used before with another request body.",
	}
}

// Internal returns a 500 that tells the client nothing of cause.
func Internal(cause error) *Error {
	return &Error{
		Status: http.StatusInternalServerError, Type: typeServer, Code: "internal_error",
		Message: "The proxy had an internal error while processing the request.", Err: cause,
	}
}
