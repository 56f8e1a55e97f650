package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// AppendReset appends d as the value of an x-ratelimit-reset header in OpenAI's format, "12ms",
// "1s", "6m0s". It rounds up to the millisecond; durations in the past are "0s".
func AppendReset(dst []byte, d time.Duration) []byte {
	if d <= 0 {
		return append(dst, "0s"...)
	}
	if rest := d % time.Millisecond; rest > 0 && d < math.MaxInt64-time.Millisecond {
		d += time.Millisecond - rest
	}
	return append(dst, d.String()...)
}

// RateLimits are a provider's limits according to an answer's headers.
type RateLimits struct{ Requests, Tokens RateLimit }

// RateLimit is one limit of a provider. Each field is -1 if the provider did not report it, or in a
// format that we cannot parse.
type RateLimit struct {
	// Limit and Remaining are counts per the provider's interval, usually a minute.
	Limit, Remaining int64
	// Reset is the time until Remaining equals Limit again.
	Reset time.Duration
}

// ParseRateLimits parses x-ratelimit-* headers, in which reset may be a Go duration, as with
// OpenAI, or a number of seconds, as with Azure; anthropic-ratelimit-*, in which reset is a time
// that is converted relative to now; and the names of Mistral and Cerebras, which contain minute.
// Groq counts requests per day, so those are ignored.
func ParseRateLimits(h http.Header, now time.Time) RateLimits {
	if !saysLimits(h) {
		none := RateLimit{-1, -1, -1}
		return RateLimits{none, none}
	}
	limits := RateLimits{
		openaiLimit(h, now, "Requests", "Req-Minute", "Requests-Minute"),
		openaiLimit(h, now, "Tokens", "Tokens-Minute"),
	}
	if h.Get("X-Groq-Region") != "" {
		limits.Requests = RateLimit{-1, -1, -1}
	}
	if limits.Requests.Limit < 0 {
		limits.Requests = anthropicLimit(h, now, limits.Requests, "Requests")
	}
	if limits.Tokens.Limit < 0 {
		limits.Tokens = anthropicLimit(h, now, limits.Tokens, "Tokens", "Input-Tokens")
	}
	return limits
}

// saysLimits reports whether any header is about limits. Most self-hosted providers send none, and
// looking up each name costs more than a scan.
func saysLimits(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Anthropic-Ratelimit-") {
			return true
		}
	}
	return false
}

// openaiLimit parses the first of the names that is present.
func openaiLimit(h http.Header, now time.Time, names ...string) RateLimit {
	var first RateLimit
	for i, what := range names {
		l := rateLimit(h, now, "X-Ratelimit-Limit-"+what, "X-Ratelimit-Remaining-"+what, "X-Ratelimit-Reset-"+what)
		if i == 0 || first.Limit < 0 && l.Limit >= 0 {
			first = l
		}
	}
	return first
}

// anthropicLimit parses the first limit that is present, else returns other.
func anthropicLimit(h http.Header, now time.Time, other RateLimit, names ...string) RateLimit {
	for _, name := range names {
		prefix := "Anthropic-Ratelimit-" + name
		if l := rateLimit(h, now, prefix+"-Limit", prefix+"-Remaining", prefix+"-Reset"); l.Limit >= 0 {
			return l
		}
	}
	return other
}

func rateLimit(h http.Header, now time.Time, limit, remaining, reset string) RateLimit {
	l := RateLimit{Limit: parseCount(h.Get(limit)), Remaining: parseCount(h.Get(remaining)), Reset: -1}
	if l.Limit == 0 { // Azure sends 0 if there is no limit
		return RateLimit{-1, -1, -1}
	}
	text := strings.TrimSpace(h.Get(reset))
	if text == "" {
		return l
	}
	if d, ok := parseUnits(text, time.Second); ok {
		l.Reset = d
	} else if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		l.Reset = d
	} else if at, err := time.Parse(time.RFC3339, text); err == nil {
		l.Reset = min(max(at.Sub(now), 0), maxWait)
	}
	return l
}

// parseCount returns a nonnegative integer, or -1.
func parseCount(text string) int64 {
	if text == "" { // an error would allocate
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// maxWait bounds the waits accepted from a provider's headers.
const maxWait = 365 * 24 * time.Hour

// parseUnits parses a number of units, possibly with a fraction. Values of more than a year are
// reduced to a year.
func parseUnits(text string, unit time.Duration) (time.Duration, bool) {
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil && !math.IsInf(n, 0), math.IsNaN(n), n < 0:
		return 0, false
	case n*float64(unit) >= float64(maxWait):
		return maxWait, true
	}
	return time.Duration(math.Ceil(n * float64(unit))), true
}

// ParseRetryAfter returns the wait that a provider requests in retry-after-ms or retry-after
// (seconds or an HTTP date, which is converted relative to now), and whether there is one. A date
// in the past is 0; the maximum is a year.
func ParseRetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	if d, ok := parseUnits(strings.TrimSpace(h.Get("Retry-After-Ms")), time.Millisecond); ok {
		return d, true
	}
	text := strings.TrimSpace(h.Get("Retry-After"))
	if d, ok := parseUnits(text, time.Second); ok {
		return d, true
	}
	if text == "" {
		return 0, false
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), maxWait), true
}

// ParseRetryDelay returns the wait in the google.rpc.RetryInfo of an error's body, and whether there is
// one. The maximum is a year.
func ParseRetryDelay(body []byte) (time.Duration, bool) {
	if len(body) == 0 {
		return 0, false
	}
	for _, detail := range errorOf(body).Details {
		text, isSeconds := strings.CutSuffix(detail.RetryDelay, "s")
		if d, ok := parseUnits(text, time.Second); ok && isSeconds {
			return d, true
		}
	}
	return 0, false
}

// providerError is what a provider's error says about later calls.
type providerError struct {
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"` // a text, a number or null
	Status  string          `json:"status"`
	Details []struct {
		RetryDelay string `json:"retryDelay"`
		Reason     string `json:"reason"`
	} `json:"details"`
}

// errorOf parses an error's body; Gemini wraps it in an array.
func errorOf(body []byte) providerError {
	type answer struct {
		Error json.RawMessage `json:"error"`
	}
	var one answer
	if list := []answer{}; json.Unmarshal(body, &list) == nil && len(list) > 0 {
		one = list[0]
	} else if json.Unmarshal(body, &one) != nil {
		return providerError{}
	}
	var e providerError
	if json.Unmarshal(one.Error, &e) != nil {
		return providerError{}
	}
	return e
}

// accountCodes are the codes and types of errors that concern the account or its credential, whatever
// the call. Only these make a 403 one of the account: others concern what was asked for.
var accountCodes = map[string]bool{
	"invalid_api_key": true, "incorrect_api_key": true, "authentication_error": true, "account_deactivated": true,
	"account_disabled": true, "api_key_disabled": true, "api_key_expired": true, "billing_not_active": true,
	"API_KEY_INVALID": true, "UNAUTHENTICATED": true, "ACCESS_TOKEN_EXPIRED": true, "BILLING_DISABLED": true,
	"CONSUMER_SUSPENDED": true,
}

// narrowCodes are the codes of a 401 that concern the right to one thing.
var narrowCodes = map[string]bool{"missing_scope": true, "insufficient_permissions": true, "permission_error": true}

// RefusesAccount reports whether a provider's error says that the account has no money left or that its
// credential is refused, so that every call would fail in the same way. body may be cut off.
func RefusesAccount(status int, body []byte) bool {
	if body == nil {
		return false
	}
	e := errorOf(body)
	var code string
	_ = json.Unmarshal(e.Code, &code) // otherwise it is a number
	known := accountCodes[code] || accountCodes[e.Type] || accountCodes[e.Status]
	for _, d := range e.Details {
		known = known || accountCodes[d.Reason]
	}
	switch status {
	case http.StatusPaymentRequired: // DeepSeek; OpenRouter, also if only this call asks for too much
		return !bytes.Contains(body, []byte("fewer max_tokens"))
	case http.StatusTooManyRequests:
		return SpentCodes[code] || SpentCodes[e.Type]
	case http.StatusUnauthorized:
		return known || !narrowCodes[code] && !narrowCodes[e.Type]
	case http.StatusForbidden, http.StatusBadRequest:
		return known
	}
	return false
}

// SpentCodes are the codes of a 429 that waiting does not fix (docs/wire.md, Retry advice).
var SpentCodes = map[string]bool{
	"insufficient_quota": true, "credit_balance_exhausted": true, "organization_spend_limit_exceeded": true,
	"project_spend_limit_exceeded": true, "organization_usage_limit_exceeded": true,
}
