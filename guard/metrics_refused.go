package guard

import (
	"cmp"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/llmguard/llmguard/budget"
)

const (
	// maxCauseSeries bounds the series of refused calls. Causes beyond it count under otherCause.
	maxCauseSeries = 2000
	otherCause     = "_other"
	unknownOrg     = "_unknown"
)

// refusedCalls counts the calls that were refused. It is safe for concurrent use.
type refusedCalls struct {
	calls *prometheus.CounterVec

	mu   sync.Mutex
	seen map[[2]string]bool // org and cause
}

func newRefusedCalls(reg prometheus.Registerer) *refusedCalls {
	return &refusedCalls{
		seen: map[[2]string]bool{},
		calls: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_refused_calls_total",
			Help: "Calls and jobs that were refused, by org and cause, such as limit:daily, brake:wild-run, stop:acme, " +
				"pool:main, queue:org_jobs, memory:org, provider:openai. Beyond 500 orgs or 2,000 causes the rest is counted as " +
				"_other.",
		}, []string{"org", "cause"}),
	}
}

// count counts a call of an org, whose name is bounded.
func (r *refusedCalls) count(org string, cause budget.Cause) {
	r.mu.Lock()
	defer r.mu.Unlock()
	series := [2]string{org, cmp.Or(string(cause), otherCause)}
	if !r.seen[series] && len(r.seen) >= maxCauseSeries {
		series[1] = otherCause
	}
	r.seen[series] = true
	r.calls.WithLabelValues(series[:]...).Inc()
}
