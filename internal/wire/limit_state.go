package wire

import (
	"maps"
	"math/bits"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Standard is the form in which answers report limits to clients that do not know llmguard.
type Standard string

// The standards. The zero value is X.
const (
	X    Standard = "x"    // X-RateLimit-*, of the limit that binds first
	IETF Standard = "ietf" // RateLimit and RateLimit-Policy, of all limits
	Both Standard = "both"
	None Standard = "off"
)

// Units of a LimitState.
const (
	UnitRequests = "requests"
	UnitTokens   = "tokens"
	UnitMicroUSD = "micro-usd"
	UnitParallel = "concurrent-requests"
	UnitBytes    = "content-bytes"
)

// LimitState is the state of one limit.
type LimitState struct {
	Name              string // letters, digits, dots, dashes and underscores
	Unit              string
	Amount, Remaining int64         // in Unit
	Window            time.Duration // in which Amount returns; 0 if it has none
	Reset             time.Time     // when all of it is available again; zero if time alone does not free it
}

// headerNames are the headers that SetLimits writes.
var headerNames = [...]string{
	"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Resource", "Ratelimit-Policy",
	"Ratelimit",
}

// HasLimits reports whether SetLimits has written to the headers.
func HasLimits(h http.Header) bool { return len(h["X-Ratelimit-Limit"]) > 0 || len(h["Ratelimit"]) > 0 }

// SetLimits replaces the headers that report limits in a form that clients of ep know
// (docs/wire.md, Rate limit headers). Without limits it changes nothing.
func SetLimits(h http.Header, ep Endpoint, standard Standard, limits []LimitState, now time.Time) {
	if len(limits) == 0 {
		return
	}
	for _, name := range headerNames {
		delete(h, name)
	}
	if standard != None && ep.Traits().Messages {
		setMessages(h, limits, now)
	}
	if standard != None && standard != IETF {
		setX(h, bindingOf(limits, ""), now)
	}
	if standard == IETF || standard == Both {
		setIETF(h, limits, now)
	}
}

// setX writes the X-RateLimit headers. All values share one string, because this is done for every
// call.
func setX(h http.Header, l *LimitState, now time.Time) {
	var space [128]byte
	var ends [4]int
	b := strconv.AppendInt(space[:0], max(l.Amount, 0), 10)
	ends[0] = len(b)
	b = strconv.AppendInt(b, l.left(), 10)
	ends[1] = len(b)
	if !l.Reset.IsZero() {
		b = strconv.AppendInt(b, now.Unix()+l.seconds(now), 10)
	}
	ends[2] = len(b)
	b = append(b, l.Name...)
	ends[3] = len(b)
	all, values, start := string(b), make([]string, len(ends)), 0
	for i, end := range ends {
		if end > start {
			values[i] = all[start:end]
			h[headerNames[i]] = values[i : i+1 : i+1]
		}
		start = end
	}
}

// maxInteger is the largest integer of a structured field (RFC 9651).
const maxInteger = 999_999_999_999_999

// setIETF writes the fields of draft-ietf-httpapi-ratelimit-headers.
func setIETF(h http.Header, limits []LimitState, now time.Time) {
	var policy, state []byte
	for i := range limits {
		l := &limits[i]
		policy, state = appendItem(policy, l.Name), appendItem(state, l.Name)
		policy = strconv.AppendInt(append(policy, ";q="...), min(max(l.Amount, 0), maxInteger), 10)
		if l.Window >= time.Second {
			policy = strconv.AppendInt(append(policy, ";w="...), ceilSeconds(l.Window), 10)
		}
		if l.Unit != UnitRequests { // the default
			policy = append(append(append(policy, `;qu="`...), l.Unit...), '"')
		}
		state = strconv.AppendInt(append(state, ";r="...), min(l.left(), maxInteger), 10)
		if !l.Reset.IsZero() {
			state = strconv.AppendInt(append(state, ";t="...), l.seconds(now), 10)
		}
	}
	h["Ratelimit-Policy"], h["Ratelimit"] = []string{string(policy)}, []string{string(state)}
}

func appendItem(b []byte, name string) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	return append(append(append(b, '"'), name...), '"')
}

// left is what remains, never negative.
func (l *LimitState) left() int64 { return min(max(l.Remaining, 0), max(l.Amount, 0)) }

// seconds returns the time until the reset in whole seconds, rounded up, so that no caller comes back
// too early.
func (l *LimitState) seconds(now time.Time) int64 {
	return max(ceilSeconds(l.Reset.Sub(now)), 0)
}

func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func (l *LimitState) tighter(than *LimitState) bool {
	hi, lo := bits.Mul64(uint64(l.left()), uint64(max(than.Amount, 1)))
	hiThan, loThan := bits.Mul64(uint64(than.left()), uint64(max(l.Amount, 1)))
	switch {
	case hi != hiThan:
		return hi < hiThan
	case lo != loThan:
		return lo < loThan
	case than.Reset.IsZero():
		return false
	}
	return l.Reset.IsZero() || l.Reset.After(than.Reset)
}

// HeaderRules say how answers report limits and when to retry. The zero value is X without jitter.
type HeaderRules struct {
	Standard Standard
	// RetryJitter is the percentage of a wait that may be added to it, 0 to 100; 0 adds nothing.
	RetryJitter int
}

// MaxRetryAfter is the longest wait that every version of every SDK obeys.
const MaxRetryAfter = 60 * time.Second

// SetRetryAfter sets the headers that ask the client to retry after wait: in whole seconds, rounded
// up, at least one. A wait of more than a minute is sent unchanged, with the advice not to retry,
// because some SDKs would otherwise retry immediately (docs/errors.md, Retry advice).
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

// RetryAfter is SetRetryAfter with jitter.
func (r HeaderRules) RetryAfter(h http.Header, wait time.Duration) {
	SetRetryAfter(h, wait)
	r.spread(h)
}

// Docs is where the documentation is published. errors.md explains each code under an anchor of its name.
const Docs = "https://github.com/llmguard/llmguard/blob/main/docs/"

// Advise copies the headers of an error to its answer, with a link to the explanation of its code. A 429 or 503
// gets jitter.
func (r HeaderRules) Advise(h http.Header, e *Error) {
	if e.Code != "" && !e.Relayed {
		h.Set("Link", "<"+Docs+"errors.md#"+e.Code+`>; rel="help"`)
	}
	maps.Copy(h, e.Header)
	if e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
		r.spread(h)
	}
}

const (
	leastJitter = 2 * time.Second // less would not spread short waits over several seconds
	mostJitter  = time.Minute
)

// spread adds a random time to Retry-After, so that callers refused by the same limit do not return
// in the same second: up to RetryJitter percent of it, at least 2 s and at most 60 s. A wait that
// clients obey stays within MaxRetryAfter (docs/errors.md, Retry advice).
func (r HeaderRules) spread(h http.Header) {
	seconds, err := strconv.ParseInt(h.Get("Retry-After"), 10, 32)
	if err != nil || r.RetryJitter <= 0 {
		return
	}
	wait := time.Duration(seconds) * time.Second
	most := min(max(wait*time.Duration(r.RetryJitter)/100, leastJitter), mostJitter)
	if wait <= MaxRetryAfter {
		most = min(most, MaxRetryAfter-wait)
	}
	SetRetryAfter(h, wait+rand.N(most/time.Second+1)*time.Second)
}

// day is the longest window that callers of Messages see as their short one.
const day = 24 * time.Hour

// setMessages writes the headers in which callers of Messages expect limits: of those that count requests and tokens,
// and the share of the one that binds first. Claude Code warns of it at three quarters.
func setMessages(h http.Header, limits []LimitState, now time.Time) {
	for _, unit := range [...]struct{ unit, name string }{{UnitRequests, "Requests"}, {UnitTokens, "Tokens"}} {
		if l := bindingOf(limits, unit.unit); l != nil {
			setAnthropic(h, unit.name, l, now)
		}
	}
	setUnified(h, bindingOf(limits, ""), now)
}

// bindingOf returns the limit in a unit, or in any if unit is empty, with the least remaining share; of equal ones, the
// one that resets last. It returns nil if there is none.
func bindingOf(limits []LimitState, unit string) *LimitState {
	var first *LimitState
	for i := range limits {
		if l := &limits[i]; (unit == "" || l.Unit == unit) && (first == nil || l.tighter(first)) {
			first = l
		}
	}
	return first
}

func setAnthropic(h http.Header, name string, l *LimitState, now time.Time) {
	name = anthropic + name
	h[name+"-Limit"] = []string{strconv.FormatInt(max(l.Amount, 0), 10)}
	h[name+"-Remaining"] = []string{strconv.FormatInt(l.left(), 10)}
	if !l.Reset.IsZero() {
		h[name+"-Reset"] = []string{now.Add(time.Duration(l.seconds(now)) * time.Second).UTC().Format(time.RFC3339)}
	}
}

// warnShare is the part of a limit, in hundredths, from which it is reported as nearly used.
const warnShare = 75

// setUnified reports the used part of a limit as Claude's subscriptions do: a short window and a long one.
func setUnified(h http.Header, l *LimitState, now time.Time) {
	claim, window := "five_hour", "5h"
	if l.Window == 0 || l.Window > day {
		claim, window = "seven_day", "7d"
	}
	used, status := int64(100), "rejected"
	if l.Amount > 0 {
		used = 100 - l.left()*100/l.Amount
	}
	switch {
	case used < warnShare:
		status = "allowed"
	case l.left() > 0:
		status = "allowed_warning"
	}
	const unified = anthropic + "Unified-"
	h[unified+"Status"], h[unified+"Representative-Claim"] = []string{status}, []string{claim}
	h[unified+window+"-Status"] = []string{status}
	h[unified+window+"-Utilization"] = []string{strconv.FormatFloat(float64(used)/100, 'f', 2, 64)}
	if l.Reset.IsZero() {
		return
	}
	reset := strconv.FormatInt(now.Unix()+l.seconds(now), 10)
	h[unified+"Reset"], h[unified+window+"-Reset"] = []string{reset}, []string{reset}
}
