package spool

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type budgetMetrics struct {
	total, used prometheus.Gauge
	refused     prometheus.Counter
}

// newMetrics registers the metrics of both budgets; r may be nil.
func newMetrics(r prometheus.Registerer) (memory, disk budgetMetrics) {
	f := promauto.With(r)
	total := f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "llmguard_spool_limit_bytes", Help: "Bytes that bodies and answers under way may take, by where they are: memory or disk.",
	}, []string{"place"})
	used := f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "llmguard_spool_used_bytes", Help: "Bytes that bodies and answers under way take, by where they are: memory or disk.",
	}, []string{"place"})
	refused := f.NewCounterVec(prometheus.CounterOpts{
		Name: "llmguard_spool_refused_total", Help: "Bodies and answers for which there was no room in time, by place: memory or disk.",
	}, []string{"place"})
	of := func(place string) budgetMetrics {
		return budgetMetrics{
			total: total.WithLabelValues(place), used: used.WithLabelValues(place), refused: refused.WithLabelValues(place),
		}
	}
	return of("memory"), of("disk")
}
