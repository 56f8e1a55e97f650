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
// A request counts when it arrives, nothing is returned, and a rejected request counts as a
// request without tokens. What is admitted within any minute never exceeds RPM and TPM, to the
// nanosecond.
type Quota struct {
	RPM int64 // requests per minute
	TPM int64 // tokens per minute, counted by [Request.Requested]
	// OTPM is the output tokens per minute, counted when an answer is complete; only Messages has it.
	OTPM int64
}

// amounts are requests, tokens and output tokens, in the order of rates.
type amounts [3]int64

// rates are the words for each limit: in OpenAI's errors, in Anthropic's errors and headers; and
// the limit reported if there is none.
var rates = [3]struct {
	openai, anthropic, header string
	generous                  int64
}{
	{"requests per min (RPM)", "requests", "Requests", 30_000},
	{"tokens per min (TPM)", "input tokens", "Input-Tokens", 150_000_000},
	{"", "output tokens", "Output-Tokens", 30_000_000},
}

func (q Quota) limits() amounts { return amounts{q.RPM, q.TPM, q.OTPM} }

// quotas holds one meter for each key with its own quota, and "" for all others.
type quotas map[string]*meter

func newQuotas(o Options) quotas {
	q := quotas{"": {quota: o.Quota}}
	for key, own := range o.KeyQuota {
		q[key] = &meter{quota: own}
	}
	return q
}

func (q quotas) of(key string) *meter {
	if m, ok := q[key]; ok {
		return m
	}
	return q[""]
}

// meter measures one quota over a sliding minute.
type meter struct {
	quota Quota

	mu      sync.Mutex
	entries []entry // oldest first
	used    amounts // sum over entries
}

type entry struct {
	at time.Time
	amounts
}

// verdict is the answer of a meter to a request.
type verdict struct {
	refused                bool
	rate                   int   // index of the limit that rejected the request
	limit, used, requested int64 // of that limit
	wait                   time.Duration
	windows                [3]window
}

// window is the state of one limit.
type window struct {
	limit, left int64
	reset       time.Duration // until nothing counts any more
}

// admit counts a request that arrives now, or rejects it.
func (m *meter) admit(now time.Time, tokens int64) verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire(now)
	v := m.check(now, amounts{1, tokens, 1})
	if v.refused {
		tokens = 0
	}
	m.add(entry{now, amounts{1, tokens, 0}})
	for i, limit := range m.quota.limits() {
		if limit <= 0 {
			limit = rates[i].generous
		}
		v.windows[i] = window{limit: limit, left: max(limit-m.used[i], 0)}
		if m.used[i] > 0 {
			v.windows[i].reset = time.Minute
		}
	}
	return v
}

// generated counts the output of an answer.
func (m *meter) generated(now time.Time, output int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(entry{now, amounts{0, 0, output}})
}

// expire drops entries older than a minute. It requires m.mu.
func (m *meter) expire(now time.Time) {
	edge := now.Add(-time.Minute)
	for len(m.entries) > 0 && !m.entries[0].at.After(edge) {
		for i, n := range m.entries[0].amounts {
			m.used[i] -= n
		}
		m.entries = m.entries[1:]
	}
}

// add requires m.mu.
func (m *meter) add(e entry) {
	m.entries = append(m.entries, e)
	for i, n := range e.amounts {
		m.used[i] += n
	}
}

// check requires m.mu and a call of expire.
func (m *meter) check(now time.Time, need amounts) verdict {
	for i, limit := range m.quota.limits() {
		over := m.used[i] + need[i] - limit
		if limit > 0 && over > 0 {
			return verdict{
				refused: true, rate: i, limit: limit, used: m.used[i], requested: need[i], wait: m.until(now, i, over),
			}
		}
	}
	return verdict{}
}

// until returns how long it takes until entries worth need have left the minute.
func (m *meter) until(now time.Time, rate int, need int64) time.Duration {
	for _, e := range m.entries {
		need -= e.amounts[rate]
		if need <= 0 {
			return e.at.Add(time.Minute).Sub(now)
		}
	}
	return time.Minute
}

// openAI sets the x-ratelimit-* headers and returns the 429, or nil.
func (v verdict) openAI(h http.Header, model string) error {
	for i, what := range []string{"Requests", "Tokens"} {
		h.Set("X-Ratelimit-Limit-"+what, strconv.FormatInt(v.windows[i].limit, 10))
		h.Set("X-Ratelimit-Remaining-"+what, strconv.FormatInt(v.windows[i].left, 10))
		h.Set("X-Ratelimit-Reset-"+what, v.windows[i].reset.String())
	}
	if !v.refused {
		return nil
	}
	v.retryAfter(h)
	h.Set("Retry-After-Ms", strconv.FormatInt(max(v.wait.Milliseconds(), 1), 10))
	kind := "requests"
	if v.rate > 0 {
		kind = "tokens"
	}
	return &apiError{
		status: http.StatusTooManyRequests, Type: kind, Code: nullable("rate_limit_exceeded"), outcome: Limited,
		Message: fmt.Sprintf("Rate limit reached for %s in organization org-fake on %s: Limit %d, Used %d, Requested %d. "+
			"Please try again in %s. Visit https://platform.openai.com/account/rate-limits to learn more.",
			model, rates[v.rate].openai, v.limit, v.used, v.requested, v.wait.Round(time.Millisecond)),
	}
}

func (v verdict) retryAfter(h http.Header) {
	h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(max(v.wait.Seconds(), 1))), 10))
}
