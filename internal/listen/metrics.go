package listen

import "github.com/prometheus/client_golang/prometheus"

// Metrics count what listeners have refused. They are safe for concurrent use.
type Metrics struct{ refused *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "llmguard_listen_refused_total",
		Help: "Connections closed immediately: a bound of the listener was reached (of all, or of one address), or the TLS handshake failed.",
	}, []string{"listener", "bound"})}
	r.MustRegister(m.refused)
	return m
}

// Refused counts a connection that a listener refused, by the bound that was reached.
func (m *Metrics) Refused(listener, bound string) {
	m.refused.WithLabelValues(listener, bound).Inc()
}
