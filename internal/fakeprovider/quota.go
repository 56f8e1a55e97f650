package fakeprovider

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Quota is a provider's rate limit. Zero fields are unlimited; the headers then report a
// generous limit.
//
// It counts like OpenAI: a request counts when it arrives, with [Request.Requested] tokens,
// nothing is returned, and a rejected request counts as a request (without tokens). The
// requests admitted within any Window never exceed the quota, to the nanosecond.
type Quota struct {
	RPM, TPM    int64         // requests and tokens per Window
	Concurrency int           // requests in flight
	Window      time.Duration // default one minute
	FreeRefusal bool          // rejected requests do not count
}

func (q Quota) withDefaults() Quota {
	if q.Window <= 0 {
		q.Window = time.Minute
	}
	return q
}

// quotas holds one meter per model or key with its own quota, and "" for all others.
type quotas struct {
	meters, keys map[string]*meter // fixed at New
}

func newQuotas(o Options) *quotas {
	q := &quotas{meters: map[string]*meter{"": {quota: o.Quota.withDefaults()}}, keys: map[string]*meter{}}
	for model, own := range o.ModelQuota {
		q.meters[model] = &meter{quota: own.withDefaults()}
	}
	for key, own := range o.KeyQuota {
		q.keys[key] = &meter{quota: own.withDefaults()}
	}
	return q
}

func (q *quotas) of(key, model string) *meter {
	if m, ok := q.keys[key]; ok {
		return m
	}
	if m, ok := q.meters[model]; ok {
		return m
	}
	return q.meters[""]
}

func (q *quotas) peaks() (requests, tokens int64) {
	for _, m := range q.meters {
		m.mu.Lock()
		requests, tokens = max(requests, m.peakRequests), max(tokens, m.peakTokens)
		m.mu.Unlock()
	}
	return requests, tokens
}

// meter measures one quota over a sliding window.
type meter struct {
	quota Quota

	mu                       sync.Mutex
	entries                  []entry // oldest first
	requests, refused        int64   // sums over entries
	tokens                   int64
	inFlight                 int
	peakRequests, peakTokens int64
}

type entry struct {
	at      time.Time
	tokens  int64
	refused bool
}

// verdict is the state of the meter after a request.
type verdict struct {
	refused                string // "": admitted, otherwise the limit that rejected it
	limit, used, requested int64  // of the limit that rejected the request
	wait                   time.Duration
	header                 http.Header
}

// admit counts a request that arrives now, or rejects it.
func (m *meter) admit(now time.Time, tokens int64) verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire(now)
	v := m.check(now, tokens)
	if v.refused == "" {
		m.inFlight++
		m.add(entry{at: now, tokens: tokens})
	} else if !m.quota.FreeRefusal {
		m.add(entry{at: now, refused: true})
	}
	v.header = m.header(now)
	if v.refused != "" {
		v.header.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(max(v.wait.Seconds(), 1))), 10))
		v.header.Set("Retry-After-Ms", strconv.FormatInt(max(v.wait.Milliseconds(), 1), 10))
	}
	return v
}

// leave ends an admitted request.
func (m *meter) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight--
}

// expire drops entries older than a window. It requires m.mu.
func (m *meter) expire(now time.Time) {
	edge := now.Add(-m.quota.Window)
	n := 0
	for n < len(m.entries) && !m.entries[n].at.After(edge) {
		e := m.entries[n]
		m.requests--
		m.tokens -= e.tokens
		if e.refused {
			m.refused--
		}
		n++
	}
	m.entries = m.entries[n:]
}

// add requires m.mu.
func (m *meter) add(e entry) {
	m.entries = append(m.entries, e)
	m.requests++
	m.tokens += e.tokens
	if e.refused {
		m.refused++
	}
	m.peakRequests = max(m.peakRequests, m.requests-m.refused)
	m.peakTokens = max(m.peakTokens, m.tokens)
}

// check requires m.mu and an expired window.
func (m *meter) check(now time.Time, tokens int64) verdict {
	q := m.quota
	switch {
	case q.Concurrency > 0 && m.inFlight >= q.Concurrency:
		return verdict{
			refused: "concurrent requests", limit: int64(q.Concurrency), used: int64(m.inFlight), requested: 1,
			wait: time.Second,
		}
	case q.RPM > 0 && m.requests+1 > q.RPM:
		wait := m.until(now, func(entry) int64 { return 1 }, m.requests+1-q.RPM)
		return verdict{refused: "requests per min (RPM)", limit: q.RPM, used: m.requests, requested: 1, wait: wait}
	case q.TPM > 0 && m.tokens+tokens > q.TPM:
		wait := m.until(now, func(e entry) int64 { return e.tokens }, m.tokens+tokens-q.TPM)
		return verdict{refused: "tokens per min (TPM)", limit: q.TPM, used: m.tokens, requested: tokens, wait: wait}
	}
	return verdict{}
}

// until returns how long it takes until entries worth need have left the window.
func (m *meter) until(now time.Time, worth func(entry) int64, need int64) time.Duration {
	for _, e := range m.entries {
		need -= worth(e)
		if need <= 0 {
			return e.at.Add(m.quota.Window).Sub(now)
		}
	}
	return m.quota.Window
}

// Limits reported in headers if there are none.
const (
	generousRPM = 30_000
	generousTPM = 150_000_000
)

// header returns the x-ratelimit-* headers; reset is the time until the window is empty.
func (m *meter) header(now time.Time) http.Header {
	h := make(http.Header)
	var lastRequest, lastTokens time.Duration
	if n := len(m.entries); n > 0 {
		lastRequest = m.entries[n-1].at.Add(m.quota.Window).Sub(now)
	}
	if m.tokens > 0 {
		lastTokens = lastRequest
	}
	set := func(what string, limit, generous, used int64, reset time.Duration) {
		if limit <= 0 {
			limit = generous
		}
		h.Set("X-Ratelimit-Limit-"+what, strconv.FormatInt(limit, 10))
		h.Set("X-Ratelimit-Remaining-"+what, strconv.FormatInt(max(limit-used, 0), 10))
		h.Set("X-Ratelimit-Reset-"+what, reset.Round(time.Millisecond).String())
	}
	set("Requests", m.quota.RPM, generousRPM, m.requests, lastRequest)
	set("Tokens", m.quota.TPM, generousTPM, m.tokens, lastTokens)
	return h
}

// error returns the 429 in OpenAI's words.
func (v verdict) error(model string) *apiError {
	kind := "tokens"
	if v.refused != "tokens per min (TPM)" {
		kind = "requests"
	}
	return &apiError{
		status: http.StatusTooManyRequests, Type: kind, Code: nullable("rate_limit_exceeded"), outcome: Limited,
		Message: fmt.Sprintf("Rate limit reached for %s in organization org-fake on %s: Limit %d, Used %d, Requested %d. "+
			"Please try again in %s. Visit https://platform.openai.com/account/rate-limits to learn more.",
			model, v.refused, v.limit, v.used, v.requested, v.wait.Round(time.Millisecond)),
	}
}
