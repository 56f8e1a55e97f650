package proxy

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

// Reasons for a 429 other than a limit. Ids of limits have no underscore in front.
const (
	byProvider = "_provider"
	byQueue    = "_queue"
	byOther    = "_other"
	noOrg      = "_unknown"
)

// Bounds on the series of limited. Orgs beyond the first and limits beyond the first are counted
// as _other.
const (
	mostLimitedOrgs = 500
	mostLimited     = 2000
)

// limited counts the answers with 429.
type limited struct {
	answers *prometheus.CounterVec

	mu   sync.Mutex
	orgs map[string]bool
	seen map[limitedKey]bool
}

type limitedKey struct{ org, limit string }

func newLimited(reg prometheus.Registerer) *limited {
	return &limited{
		orgs: map[string]bool{}, seen: map[limitedKey]bool{},
		answers: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_proxy_rate_limited_total",
			Help: "Answers with 429 or 402, by org and by the limit that refused (cap:ID for a spend cap), or _provider (its " +
				"rate limit), _queue (full), _other. Beyond 500 orgs or 2,000 limits the rest is counted as _other.",
		}, []string{"org", "limit"}),
	}
}

// count counts one answer.
func (l *limited) count(org, limit string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.orgs[org] && len(l.orgs) >= mostLimitedOrgs {
		org = byOther
	}
	key := limitedKey{org, limit}
	if !l.seen[key] && len(l.seen) >= mostLimited {
		key.limit = byOther
	}
	l.orgs[org], l.seen[key] = true, true
	l.answers.WithLabelValues(key.org, key.limit).Inc()
}

// countLimited counts the request if a limit refused it, also inside a stream.
func (x *request) countLimited(status int) {
	public, ok := errors.AsType[*wire.Error](x.err)
	if !wire.OverLimit(status) && !(ok && wire.OverLimit(public.Status)) {
		return
	}
	org := noOrg
	if x.caller.Org != nil {
		org = x.caller.Org.ID
	}
	x.server.metrics.limited.count(org, x.limitedBy())
}

// limitedBy returns what caused a 429 or 402.
func (x *request) limitedBy() string {
	var refused *guard.Refusal
	var noQuota *quota.BusyError
	var busy *guard.BusyError
	var full *queue.FullError
	switch err := x.err; {
	case x.limit != "":
		return x.limit
	case errors.As(err, &refused) && refused.ExceededError != nil:
		return refused.Limit()
	case errors.As(err, &full):
		return byQueue
	case err == nil, errors.As(err, &noQuota), errors.As(err, &busy), errors.Is(err, quota.ErrStale):
		return byProvider // without an error of ours it is the provider's own answer
	default:
		return byOther
	}
}
