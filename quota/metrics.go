package quota

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	grants   *prometheus.CounterVec // pool, outcome
	refusals *prometheus.CounterVec // pool, status
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		grants: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_quota_grants_total", Help: "Requests of live calls for provider quota, by outcome.",
		}, []string{"pool", "outcome"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_quota_refusals_total", Help: "Provider responses that blocked the pool: 429, 503 and 529.",
		}, []string{"pool", "status"}),
	}
	if reg != nil {
		reg.MustRegister(m.grants, m.refusals)
	}
	return m
}
