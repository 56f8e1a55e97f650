package capacity

import "github.com/prometheus/client_golang/prometheus"

func newRefused(reg prometheus.Registerer) *prometheus.CounterVec {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "llmguard_capacity_refused_total",
		Help: "Bodies and answers that were not admitted into Redis, by what is full: the share of the org, or all; or " +
			"that can never be (never).",
	}, []string{"scope"})
	if reg != nil {
		reg.MustRegister(refused)
	}
	return refused
}
