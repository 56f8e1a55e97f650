package budget

import "github.com/prometheus/client_golang/prometheus"

// requestMetrics count what a RequestCounter decides. The names of limits come from the configuration, so
// their number is fixed.
type requestMetrics struct {
	refused *prometheus.CounterVec // by limit and mode
	alone   prometheus.Counter
}

func newRequestMetrics(reg prometheus.Registerer) *requestMetrics {
	m := &requestMetrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_budget_request_refusals_total",
			Help: "Requests over a limit of request_limits, and wrong keys over their limits (wrong-keys, " +
				"wrong-keys-total), by limit and mode; in mode shadow they were admitted.",
		}, []string{"limit", "mode"}),
		alone: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "llmguard_budget_requests_counted_alone_total",
			Help: "Requests and wrong keys that were counted by this process alone, because Redis did not answer.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.refused, m.alone)
	}
	return m
}

// counted records the result of one count.
func (m *requestMetrics) counted(out Counted) {
	if out.Local {
		m.alone.Inc()
	}
	for _, st := range out.Statuses {
		if st.Refused && (out.Refused || st.Mode == Shadow) {
			m.refused.WithLabelValues(st.LimitID, string(st.Mode)).Inc()
		}
	}
}
