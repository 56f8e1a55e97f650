package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// AppendReset appends d as the value of an x-ratelimit-reset header: OpenAI's
// form, "12ms", "1s", "6m0s". It rounds up to the millisecond; what is past is
// "0s".
func AppendReset(dst []byte, d time.Duration) []byte {
	if d <= 0 {
		return append(dst, "0s"...)
	}
	if rest := d % time.Millisecond; rest > 0 && d < math.MaxInt64-time.Millisecond {
		d += time.Millisecond - rest
	}
	return append(dst, d.String()...)
}

// RateLimits is what a provider says of its limits in an answer's headers.
type RateLimits struct{ Requests, Tokens RateLimit }

// RateLimit is one limit of a provider. Each field is -1 when the provider did
// not say, or said something we cannot read.
type RateLimit struct {
	// Limit and Remaining are counts per the provider's interval, as a rule a
	// minute.
	Limit, Remaining int64
	// Reset is the time until Remaining is back at Limit.
	Reset time.Duration
}

// ParseRateLimits reads x-ratelimit-* headers, in which reset may be a Go
// duration, as OpenAI has it, or a number of seconds, as Azure does; and
// anthropic-ratelimit-*, in which it is a time, relative to now; and Mistral's
// and Cerebras's names, which say minute. Groq counts requests by the day: those
// are left out.
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

// saysLimits reports whether any header is about limits. Most providers that run
// beside us send none, and to look for each by its name costs more than a scan.
func saysLimits(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Anthropic-Ratelimit-") {
			return true
		}
	}
	return false
}

// openaiLimit reads the first of the names that is there.
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

// anthropicLimit reads the first limit that is there, else returns `other`.
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
	if l.Limit == 0 { // as Azure has it where there is none
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

// parseCount returns a whole number that is not negative, or -1.
func parseCount(text string) int64 {
	if text == "" { // an error is a piece of memory
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// maxWait bounds the waits we take from a provider's header.
const maxWait = 365 * 24 * time.Hour

// parseUnits reads a number of units, possibly with a fraction. Values beyond
// a year become a year.
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

// ParseRetryAfter returns how long a provider asks to be left alone, from
// retry-after-ms or retry-after (seconds or an HTTP date, which is relative to
// now), and whether it says so. A date in the past is 0; a year is the most.
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
