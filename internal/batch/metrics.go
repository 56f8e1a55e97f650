package batch

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	ended *prometheus.CounterVec
	lines *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "llmguard", Subsystem: "batch", Name: name,
			Help: help,
		}, []string{label})
	}
	m := &metrics{
		ended: counter("ended_total", "Finished batches, by status.", "status"),
		lines: counter("lines_total",
			"Lines of batches whose results were written: completed, failed, or unrun because their batch ended first.",
			"outcome"),
	}
	if reg != nil {
		reg.MustRegister(m.ended, m.lines)
	}
	return m
}

func (m *metrics) count(c *chunk) {
	m.lines.WithLabelValues("completed").Add(float64(c.good))
	m.lines.WithLabelValues("failed").Add(float64(c.bad))
	m.lines.WithLabelValues("unrun").Add(float64(c.unrun))
}
