package quota

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// Head is the status and headers of a provider's answer, which may report its limits.
type Head struct {
	Model  string // as named by the provider
	Name   string // as named in the request, and so in lanes of jobs; "" if it is the same
	Status int
	Header http.Header
	Sent   time.Time // when the request was written
	// Body is the body of an error; nil as long as it was not read. Again means that the same answer was
	// observed without it.
	Body  []byte
	Again bool

	Within time.Duration // bounds the call to Redis, if one is needed; 0 means as long as ctx
}

// refused reports whether the provider turned the request away temporarily.
func (a *Head) refused() bool {
	return a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable ||
		a.Status == wire.StatusOverloaded
}

// refusal is what a provider's answer says about later calls.
type refusal struct {
	refused string        // as in lua/observe.lua
	scope   string        // as in lua/observe.lua
	wait    time.Duration // that it asks for; negative: none
	longest time.Duration // of a refusal of the account: what it pauses for
	known   bool          // it was observed before
}

// refusalOf judges an answer. An account without money, or a refused credential, is judged by the body.
func refusalOf(a *Head, now time.Time) refusal {
	r := refusal{refused: "0", scope: "model", wait: -1}
	account := wire.RefusesAccount(a.Status, a.Body)
	if !account && !a.refused() {
		if a.Status >= http.StatusBadRequest && a.Body == nil {
			r.refused = "-"
		}
		return r
	}
	r.refused = "1"
	wait, fromHead := wire.ParseRetryAfter(a.Header, now)
	delay, fromBody := wire.ParseRetryDelay(a.Body)
	switch {
	case fromHead:
		r.wait = wait
	case fromBody:
		r.wait = delay
	}
	r.known = a.Again && a.refused() && !account && (fromHead || !fromBody)
	switch a.Header.Get("X-Ratelimit-Scope") {
	case "global", "account", "organization":
		r.scope = "all"
	}
	if account {
		r.scope, r.longest = "account", AccountPause
	}
	if !fromHead && wire.SpentMonth(a.Status, a.Body) {
		year, month, _ := now.UTC().Date()
		r.longest = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).Sub(now)
	}
	return r
}

// AccountPause is how long a pool is left alone if its account has no money or its credential is
// refused. Then one call is tried. If it has used up its month, that is on the first of the next one, 00:00 UTC.
const AccountPause = time.Hour

// How often this process reports unchanged limits to the others: every reportEvery, or
// every lowEvery while little quota remains.
const (
	reportEvery = 5 * time.Second
	lowEvery    = 250 * time.Millisecond
)

// report is what this process last reported of a pool and model.
type report struct {
	requests, tokens, output int64 // limits
	at                       time.Time
}

// reports holds the last reports, for at most 1,000 pools and models.
type reports struct {
	mu   sync.Mutex
	last map[string]report
}

// due reports whether an answer contains something new.
func (s *reports) due(pool string, a *Head, l wire.RateLimits) bool {
	limits := []wire.RateLimit{l.Requests, l.Tokens, l.Output}
	if !slices.ContainsFunc(limits, func(one wire.RateLimit) bool { return one.Limit > 0 }) {
		return false
	}
	every := reportEvery
	for _, limit := range limits {
		if limit.Remaining >= 0 && limit.Remaining < limit.Limit/20 {
			every = lowEvery
		}
	}
	name, now := pool+" "+a.Model, time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	last, next := s.last[name], report{l.Requests.Limit, l.Tokens.Limit, l.Output.Limit, now}
	same := last.requests == next.requests && last.tokens == next.tokens && last.output == next.output
	if same && now.Sub(last.at) < every {
		return false
	}
	if s.last == nil || len(s.last) > 1000 {
		s.last = make(map[string]report)
	}
	s.last[name] = next
	return true
}

// Observe learns from an answer of the pool's provider: the limits it reports bound the
// pool for all processes, and a 429, 503 or 529 pauses its model and slows it down, or the
// pool if two models are refused. A pause is at most the pool's MaxPause, and AccountPause
// if the account has no money or its credential is refused. It returns how long the
// answer's model rests because of the refusal, 0 for other answers. Most answers contain
// nothing new and cost no command.
func (q *Quota) Observe(ctx context.Context, poolID string, a Head) (time.Duration, error) {
	p, err := q.pool(poolID)
	if err != nil {
		return 0, err
	}
	says := refusalOf(&a, time.Now())
	rest, err := q.observe(ctx, p, a, says)
	if says.refused != "1" || says.known || err == nil && rest > 0 {
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

func (q *Quota) observe(ctx context.Context, p *pool, a Head, says refusal) (time.Duration, error) {
	limits := wire.NoLimits
	switch {
	case p.FixedQuota:
	case p.Split:
		limits = wire.ParseSplitLimits(a.Header, time.Now())
	default:
		limits = wire.ParseRateLimits(a.Header, time.Now())
	}
	longest := cmp.Or(says.longest, p.MaxPause)
	says.wait = min(says.wait, longest+time.Second) // longer than allowed is all that the script has to know
	due := q.reports.due(p.ID, &a, limits) || says.refused == "1" || says.refused == "0" && q.tries(p.ID)
	if !due || says.known {
		return 0, nil
	}
	if a.Within > 0 { // only here, so that most answers need no timer
		bounded, cancel := context.WithTimeout(ctx, a.Within)
		defer cancel()
		ctx = bounded
	}
	args := append([]any{
		modelCode(a.Model), max(time.Since(a.Sent), 0).Microseconds(), says.refused, max(says.wait.Microseconds(), -1),
		limits.Requests.Limit, limits.Requests.Remaining, resetOf(limits.Requests),
		limits.Tokens.Limit, limits.Tokens.Remaining, resetOf(limits.Tokens),
		limits.Output.Limit, limits.Output.Remaining, resetOf(limits.Output),
	}, p.limits...)
	args = append(args, a.Model, longest.Microseconds(), says.scope, modelCode(cmp.Or(a.Name, a.Model))[:3])
	reply, err := q.eval(ctx, "observe", observeScript, p.takes[:1], args...)
	if err != nil {
		return min(max(says.wait, 0), longest), err
	}
	w, err := words("observe", reply, 5)
	if err != nil {
		return min(max(says.wait, 0), longest), err
	}
	if w[4] == "0" {
		q.trials.Delete(p.ID)
	}
	if says.refused != "1" {
		return 0, nil
	}
	if !a.Again || !a.refused() {
		q.metrics.refusals.WithLabelValues(p.ID, strconv.Itoa(a.Status)).Inc()
	}
	return micros(w[0]), nil
}

// Tries records that this process has a trial: a call whose answer decides whether others may follow. Every
// answer of the pool is then observed until the trial is over.
func (q *Quota) Tries(poolID string) { q.trials.Store(poolID, struct{}{}) }

func (q *Quota) tries(poolID string) bool {
	_, yes := q.trials.Load(poolID)
	return yes
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
