package wire

import (
	"math/bits"
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
		setX(h, binding(limits), now)
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

// binding returns the limit with the least remaining share; of equal ones, the one that resets last.
func binding(limits []LimitState) *LimitState {
	first := &limits[0]
	for i := range limits[1:] {
		if l := &limits[i+1]; l.tighter(first) {
			first = l
		}
	}
	return first
}

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
