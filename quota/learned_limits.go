package quota

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// Head is the status and headers of a provider's answer, which may report its limits.
type Head struct {
	Model  string // as named by the provider
	Status int
	Header http.Header
	Sent   time.Time // when the request was written

	Within time.Duration // bounds the call to Redis, if one is needed; 0 means as long as ctx
}

// refused reports whether the provider turned the request away temporarily.
func (a *Head) refused() bool {
	return a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable ||
		a.Status == wire.StatusOverloaded
}

// How often this process reports unchanged limits to the others: every reportEvery, or
// every lowEvery while little quota remains.
const (
	reportEvery = 5 * time.Second
	lowEvery    = 250 * time.Millisecond
)

// report is what this process last reported of a pool and model.
type report struct {
	requests, tokens int64 // limits
	at               time.Time
}

// reports holds the last reports, for at most 1,000 pools and models.
type reports struct {
	mu   sync.Mutex
	last map[string]report
}

// due reports whether an answer contains something new.
func (s *reports) due(pool string, a *Head, l wire.RateLimits) bool {
	if l.Requests.Limit <= 0 && l.Tokens.Limit <= 0 {
		return a.refused()
	}
	every := reportEvery
	for _, limit := range []wire.RateLimit{l.Requests, l.Tokens} {
		if limit.Remaining >= 0 && limit.Remaining < limit.Limit/20 {
			every = lowEvery
		}
	}
	name, now := pool+" "+a.Model, time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last[name]
	if !a.refused() && last.requests == l.Requests.Limit && last.tokens == l.Tokens.Limit && now.Sub(last.at) < every {
		return false
	}
	if s.last == nil || len(s.last) > 1000 {
		s.last = make(map[string]report)
	}
	s.last[name] = report{l.Requests.Limit, l.Tokens.Limit, now}
	return true
}

// Observe learns from an answer of the pool's provider: the limits it reports bound the
// pool for all processes, and a 429, 503 or 529 blocks the pool and slows it down. It
// returns how long the pool rests because of a refusal, 0 for other answers. Most answers
// contain nothing new and cost no command.
func (q *Quota) Observe(ctx context.Context, poolID string, a Head) (time.Duration, error) {
	p, err := q.pool(poolID)
	if err != nil {
		return 0, err
	}
	rest, err := q.observe(ctx, p, a)
	if !a.refused() || err == nil && rest > 0 {
		return rest, err
	}
	rest = max(rest, leastRest)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leastRest)
	defer cancel()
	return rest, errors.Join(err, q.Block(ctx, poolID, rest))
}

// leastRest is how long a pool rests if the provider refuses without a time, or if Redis
// did not accept the refusal, and how long writing the pool's block may then take.
const leastRest = time.Second

func (q *Quota) observe(ctx context.Context, p *pool, a Head) (time.Duration, error) {
	limits := wire.ParseRateLimits(a.Header, time.Now())
	if p.FixedQuota {
		none := wire.RateLimit{Limit: -1, Remaining: -1, Reset: -1}
		limits = wire.RateLimits{Requests: none, Tokens: none}
	}
	if !q.reports.due(p.ID, &a, limits) {
		return 0, nil
	}
	if a.Within > 0 { // only here, so that most answers need no timer
		bounded, cancel := context.WithTimeout(ctx, a.Within)
		defer cancel()
		ctx = bounded
	}
	after, ok := wire.ParseRetryAfter(a.Header, time.Now())
	wait := after.Microseconds()
	if !ok {
		wait = -1
	}
	refused := 0
	if a.refused() {
		refused = 1
	}
	args := append([]any{
		modelCode(a.Model), max(time.Since(a.Sent), 0).Microseconds(), refused, wait,
		limits.Requests.Limit, limits.Requests.Remaining, resetOf(limits.Requests),
		limits.Tokens.Limit, limits.Tokens.Remaining, resetOf(limits.Tokens),
	}, p.limits...)
	reply, err := q.eval(ctx, "observe", observeScript, p.takes[:1], append(args, a.Model)...)
	if err != nil {
		return after, err
	}
	w, err := words("observe", reply, 4)
	if err != nil {
		return after, err
	}
	if !a.refused() {
		return 0, nil
	}
	q.metrics.refusals.WithLabelValues(p.ID, strconv.Itoa(a.Status)).Inc()
	return micros(w[0]), nil
}

func resetOf(l wire.RateLimit) int64 {
	if l.Reset < 0 {
		return -1
	}
	return l.Reset.Microseconds()
}

// modelCode returns the name under which Redis stores a model.
func modelCode(model string) string {
	sum := sha256.Sum256([]byte(model))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:8]
}
