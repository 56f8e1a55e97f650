package wire

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// StatusOverloaded is the status of Anthropic's API when it is overloaded, its equivalent of 503.
const StatusOverloaded = 529

// hopeless matches the words that make some client treat a retryable refusal as a final one
// (docs/errors.md, Retry advice).
var hopeless = regexp.MustCompile(`(?i)quotas?|billing|credit balance|out of credits|will reset at`)

// calm rewords a message of a retryable refusal. Its words may come from outside: owners choose the
// names of limits and models.
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

// agentWait is the longest wait that a coding agent is asked to spend without a word to its user.
const agentWait = 5 * time.Minute

// promising matches the words after which OpenCode repeats a call, whatever its status is.
var promising = regexp.MustCompile(`(?i)\b(rate limit|(please )?try again)\b`)

// ForAgent returns the error in the form for the program that sent the headers h. Codex and OpenCode obey any
// Retry-After of a 429 and show nothing meanwhile, so a wait of more than five minutes becomes a 402 without one, which
// they show (docs/errors.md, Retry advice). e is not changed.
func (e *Error) ForAgent(h http.Header) *Error {
	obeys := len(h["X-Codex-Window-Id"]) > 0 || strings.HasPrefix(h.Get("User-Agent"), "opencode/")
	wait, _ := ParseRetryAfter(e.Header, time.Now())
	if !obeys || e.Status != http.StatusTooManyRequests || wait <= agentWait {
		return e
	}
	out := *e
	out.Status, out.Type, out.Code = http.StatusPaymentRequired, typeQuota, "insufficient_quota"
	out.Header = e.Header.Clone()
	out.Header.Del("Retry-After")
	out.Message = promising.ReplaceAllStringFunc(e.Message, func(words string) string {
		if strings.HasSuffix(strings.ToLower(words), "again") {
			return "It has capacity again"
		}
		return "Limit"
	})
	return &out
}

// OverLimit reports whether a status of ours means that a limit refused the call: 429 if it may be
// admitted later, 402 if not.
func OverLimit(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusPaymentRequired
}

// QuotaExceeded returns a 402 for a call that no wait would admit, because it alone exceeds a limit.
// Unlike a 429, no SDK repeats it, and agents show its message (docs/errors.md, Retry advice).
func QuotaExceeded(message string) *Error {
	return &Error{
		Status: http.StatusPaymentRequired, Type: typeQuota, Code: "insufficient_quota",
		Message: message, Header: http.Header{"X-Should-Retry": {"false"}},
	}
}

// RunBudgetReached returns a 402 for a call of a run whose budget is used up, or that has ended.
func RunBudgetReached(message string) *Error {
	return &Error{
		Status: http.StatusPaymentRequired, Type: typeQuota, Code: "run_budget_reached",
		Message: message, Header: http.Header{"X-Should-Retry": {"false"}},
	}
}

// ServiceUnavailable returns a 503 for an unreachable dependency, or a proxy that is overloaded or shutting down. cause
// stays private.
func ServiceUnavailable(message string, wait time.Duration, cause error) *Error {
	return &Error{
		Status: http.StatusServiceUnavailable, Type: typeUnavailable, Code: "server_is_overloaded",
		Message: calm(message), Header: retryAfter(wait), Err: cause,
	}
}

// StoreFull returns a 503 for a store that replies but has no free memory or disk. No calls are
// sent then, because nothing can be held. cause stays private.
func StoreFull(wait time.Duration, cause error) *Error {
	return &Error{
		Status: http.StatusServiceUnavailable, Type: typeUnavailable, Code: "store_full",
		Message: "The store is out of memory or disk space, so no calls are accepted until space is freed",
		Header:  retryAfter(wait), Err: cause,
	}
}

// BadGateway returns a 502 for a provider that is unreachable, broke off, or sent an answer that
// cannot be forwarded. cause stays private.
func BadGateway(message string, cause error) *Error {
	return &Error{
		Status: http.StatusBadGateway, Type: typeServer, Code: upstreamError,
		Message: calm(message), Header: retryAfter(0), Err: cause,
	}
}

// InvalidKey returns a 401. message must not contain the key.
func InvalidKey(message string) *Error {
	return &Error{Status: http.StatusUnauthorized, Type: typeInvalidRequest, Code: "invalid_api_key", Message: message}
}

// Forbidden returns a 403 for something that a key may not do.
func Forbidden(code, format string, args ...any) *Error {
	return &Error{
		Status: http.StatusForbidden, Type: typeInvalidRequest, Code: code,
		Message: fmt.Sprintf(format, args...),
	}
}

// BrakeStopped returns a 403 for a call that a brake refuses; what describes the brake in a sentence. No
// SDK retries a 403.
func BrakeStopped(what string) *Error { return braked("brake_stopped", what) }

// ApprovalRequired is BrakeStopped for calls that need an approval.
func ApprovalRequired(what string) *Error { return braked("approval_required", what) }

func braked(code, what string) *Error {
	return &Error{
		Status: http.StatusForbidden, Type: typeInvalidRequest, Code: code,
		Message: what + " This call was not sent and not charged. An administrator can release it " +
			"(llmguard brakes release). Do not retry before that.",
		Header: http.Header{"X-Should-Retry": {"false"}},
	}
}

// SpendingStopped returns a 403 for a call while an operator has stopped spending: for everybody, or
// for one organization. No SDK, and no proxy in between, retries a 403 (docs/errors.md, Stopped
// spending).
func SpendingStopped(everybody bool) *Error {
	of := "your organization"
	if everybody {
		of = "all organizations"
	}
	return &Error{
		Status: http.StatusForbidden, Type: typeInvalidRequest, Code: "spending_stopped",
		Message: "An operator has stopped all spending of " + of + ". This call was not sent and not charged. Jobs and " +
			"batches are kept, and run once spending is resumed. Do not retry before that.",
		Header: http.Header{"X-Should-Retry": {"false"}},
	}
}

// NotFound returns a 404: for unknown routes ("unknown_url"), for models that the key may not use
// or that do not exist ("model_not_found"), and for whatever belongs to someone else. param may be
// empty.
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

// TooLarge returns a 413 for a body of more than limit bytes, and closes the connection, because
// the rest of the body is still in transit.
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
		Message: fmt.Sprintf("Content-Encoding %q is not supported; send the body unencoded.", clip([]byte(encoding))),
		Header:  http.Header{"Connection": {"close"}},
	}
}

// NotFinished returns a 409 for a call with the same idempotency key, or a job, that is still
// running. SDKs retry it automatically.
func NotFinished(message string, wait time.Duration) *Error {
	return &Error{
		Status: http.StatusConflict, Type: typeInvalidRequest, Code: "not_finished",
		Message: calm(message), Header: retryAfter(wait),
	}
}

// Gone returns a 410, which no SDK retries: the object existed and will not come back.
func Gone(code, message string) *Error {
	return &Error{Status: http.StatusGone, Type: typeInvalidRequest, Code: code, Message: message}
}

// KeyReused returns a 422 for an idempotency key that was used before with another body.
func KeyReused() *Error {
	return &Error{
		Status: http.StatusUnprocessableEntity, Type: typeInvalidRequest, Code: "idempotency_key_reused",
		Message: "This Idempotency-Key was already used with a different request body. Use a new key for each new request.",
	}
}

// Internal returns a 500 that does not reveal cause to the client.
func Internal(cause error) *Error {
	return &Error{
		Status: http.StatusInternalServerError, Type: typeServer, Code: "internal_error",
		Message: "The proxy had an internal error while processing the request.", Err: cause,
	}
}
