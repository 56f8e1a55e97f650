package guard

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// maxOrgSeries bounds the number of orgs with metrics of their own. The rest count under
// otherOrgs.
const (
	maxOrgSeries = 500
	otherOrgs    = "_other"
)

// orgSeries are the metrics of one org, looked up once.
type orgSeries struct {
	name                      string // value of the label
	cost                      prometheus.Counter
	admitted, refused, denied prometheus.Counter
}

// orgMetrics holds the series of the orgs that called first.
type orgMetrics struct {
	cost       *prometheus.CounterVec
	admissions *prometheus.CounterVec
	brakes     *prometheus.CounterVec
	mu         sync.RWMutex
	series     map[string]*orgSeries
}

func newOrgMetrics(reg prometheus.Registerer) *orgMetrics {
	f := promauto.With(reg)
	return &orgMetrics{
		series: map[string]*orgSeries{},
		cost: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_org_cost_usd_total",
			Help: "Cost charged in USD, by org. After the first 500 orgs since the start, others are counted as _other.",
		}, []string{"org"}),
		admissions: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_org_admissions_total",
			Help: "Holds requested, by org and outcome: admitted, refused (a limit has no capacity now), never (larger than " +
				"the whole limit).",
		}, []string{"org", "outcome"}),
		brakes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_brakes_fired_total", Help: "Brakes that fired, once per subject until they are released.",
		}, []string{"org", "brake", "action"}),
	}
}

func (m *orgMetrics) of(org string) *orgSeries {
	m.mu.RLock()
	s := m.series[org]
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.series) >= maxOrgSeries && m.series[org] == nil {
		org = otherOrgs
	}
	s = m.series[org]
	if s == nil { // also once for all others
		outcome := func(o string) prometheus.Counter { return m.admissions.WithLabelValues(org, o) }
		s = &orgSeries{
			name: org, cost: m.cost.WithLabelValues(org), admitted: outcome("admitted"),
			refused: outcome("refused"), denied: outcome("never"),
		}
		m.series[org] = s
	}
	return s
}
