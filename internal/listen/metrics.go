package listen

import "github.com/prometheus/client_golang/prometheus"

// Metrics count the connections that listeners refused. They are safe for concurrent use.
type Metrics struct {
	refused  *prometheus.CounterVec
	register prometheus.Registerer
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{register: r, refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "llmguard_listen_refused_total",
		Help: "Connections closed immediately: a bound of the listener was reached (of all, or of one address), or the " +
			"TLS handshake failed.",
	}, []string{"listener", "bound"})}
	r.MustRegister(m.refused)
	return m
}

// Refused counts a refused connection by listener and limit.
func (m *Metrics) Refused(listener, bound string) {
	m.refused.WithLabelValues(listener, bound).Inc()
}

// Certificate exports when a listener's certificate expires.
func (m *Metrics) Certificate(listener string, c *Certificate) {
	m.register.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "llmguard_listen_certificate_expires_timestamp_seconds", ConstLabels: prometheus.Labels{"listener": listener},
		Help: "When the certificate in use expires, in Unix seconds.",
	}, func() float64 { return float64(c.Expires().Unix()) }))
}
