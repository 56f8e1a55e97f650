package wire

import (
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

// RateLimits are a provider's limits according to an answer's headers. If input and output are counted apart,
// Tokens are those of the input.
type RateLimits struct{ Requests, Tokens, Output RateLimit }

// NoLimits are the limits of a provider that reports none.
var NoLimits = RateLimits{noLimit, noLimit, noLimit}

// RateLimit is one limit of a provider. Each field is -1 if the provider did not report it, or in a
// format that we cannot parse.
type RateLimit struct {
	// Limit and Remaining are counts per the provider's interval, usually a minute.
	Limit, Remaining int64
	// Reset is the time until Remaining equals Limit again.
	Reset time.Duration
}

// ParseRateLimits parses the headers of limitShapes. A reset is a Go duration, as with OpenAI, a number
// of seconds, as with Azure, or a time, as with Anthropic, that is converted relative to now.
func ParseRateLimits(h http.Header, now time.Time) RateLimits {
	return parseLimits(h, now, limitShapes)
}

// ParseSplitLimits is ParseRateLimits for a provider that counts input and output apart.
func ParseSplitLimits(h http.Header, now time.Time) RateLimits {
	return parseLimits(h, now, splitShapes)
}

func parseLimits(h http.Header, now time.Time, shapes []limitShape) RateLimits {
	limits := NoLimits
	if !saysLimits(h) {
		return limits
	}
	for i := range shapes {
		s := &shapes[i]
		if s.unless != "" && h.Get(s.unless) != "" {
			continue
		}
		into := &limits.Tokens
		switch s.of {
		case ofRequests:
			into = &limits.Requests
		case ofOutput:
			into = &limits.Output
		}
		if l := s.read(h, now); l.Limit >= 0 && into.Limit < 0 || *into == noLimit {
			*into = l
		}
	}
	return limits
}

var noLimit = RateLimit{-1, -1, -1}

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

func (s *limitShape) read(h http.Header, now time.Time) RateLimit {
	l := RateLimit{Limit: parseCount(h.Get(s.limit)), Remaining: parseCount(h.Get(s.remaining)), Reset: -1}
	if l.Remaining >= 0 {
		l.Remaining = min(l.Remaining+s.rounded/2, max(l.Limit, l.Remaining))
	}
	if l.Limit == 0 { // Azure sends 0 if there is no limit
		return noLimit
	}
	text := strings.TrimSpace(h.Get(s.reset))
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
	if text == "" || strings.HasSuffix(text, "s") { // none, or a duration: an error would allocate
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
