package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// FormatReset returns d as the value of an x-ratelimit-reset header: OpenAI's
// form, "12ms", "1s", "6m0s". It rounds up to the millisecond; what is past is
// "0s".
func FormatReset(d time.Duration) string {
	if d <= 0 {
		return "0s"
	}
	if rest := d % time.Millisecond; rest > 0 && d < math.MaxInt64-time.Millisecond {
		d += time.Millisecond - rest
	}
	return d.String()
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

// ParseRateLimits reads x-ratelimit-* headers. Reset may be a Go duration, as
// OpenAI has it, or a number of seconds, as Azure does.
func ParseRateLimits(h http.Header) RateLimits {
	return RateLimits{parseRateLimit(h, "Requests"), parseRateLimit(h, "Tokens")}
}

func parseRateLimit(h http.Header, what string) RateLimit {
	limit := RateLimit{
		Limit:     parseCount(h.Get("X-Ratelimit-Limit-" + what)),
		Remaining: parseCount(h.Get("X-Ratelimit-Remaining-" + what)),
		Reset:     -1,
	}
	text := strings.TrimSpace(h.Get("X-Ratelimit-Reset-" + what))
	if d, ok := parseUnits(text, time.Second); ok {
		limit.Reset = d
	} else if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		limit.Reset = d
	}
	return limit
}

// parseCount returns a whole number that is not negative, or -1.
func parseCount(text string) int64 {
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
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), maxWait), true
}
