package guard

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/llmguard/llmguard/budget"
)

const (
	// maxCauseSeries bounds the pairs of org and cause with a series of refused calls, maxRuleSeries the pairs whose
	// cause is a rule: limits and brakes can be many, and must leave series for stops, pools and providers. Causes
	// beyond count under otherCause.
	maxCauseSeries = 2000
	maxRuleSeries  = 1500
	otherCause     = "_other"
	unknownOrg     = "_unknown"
)

// refusedCalls counts the calls that were refused. It is safe for concurrent use.
type refusedCalls struct {
	calls *prometheus.CounterVec

	mu   sync.Mutex
	seen map[[2]string]bool // org and cause, without otherCause
}

func newRefusedCalls(reg prometheus.Registerer) *refusedCalls {
	return &refusedCalls{
		seen: map[[2]string]bool{},
		calls: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_refused_calls_total",
			Help: "Calls and jobs that were refused, by org and cause, such as limit:daily, brake:wild-run, stop:acme, " +
				"pool:main, queue:org_jobs, memory:org, provider:openai. The rest is counted as _other beyond 500 orgs, beyond " +
				"1,500 pairs of an org and its limit, cap, run or brake, and beyond 2,000 pairs of org and cause.",
		}, []string{"org", "cause"}),
	}
}

// count counts a call of an org, whose name is bounded.
func (r *refusedCalls) count(org string, cause budget.Cause) {
	r.mu.Lock()
	defer r.mu.Unlock()
	series := [2]string{org, cmp.Or(string(cause), otherCause)}
	most := maxCauseSeries
	if slices.Contains(rules, cause.Kind()) {
		most = maxRuleSeries
	}
	if !r.seen[series] && len(r.seen) >= most {
		series[1] = otherCause
	}
	if series[1] != otherCause {
		r.seen[series] = true
	}
	r.calls.WithLabelValues(series[:]...).Inc()
}

// rules are the kinds of causes that orgs define.
var rules = []string{budget.CauseLimit, budget.CauseCap, budget.CauseRequests, budget.CauseRun, budget.CauseBrake}
