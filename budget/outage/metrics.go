package outage

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics count the consequences of a store that was unreachable or lost data.
type Metrics struct {
	kept    prometheus.Counter
	emptied prometheus.Counter

	clockSteps prometheus.Counter

	replayed *prometheus.CounterVec // by source and by what the store made of it
}

// RegisterGauges registers gauges for what is kept for the store and for the skew of its clock.
func RegisterGauges(reg prometheus.Registerer, kept func() (int, int64), skew func() time.Duration) {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "llmguard_budget_journal_records",
		Help: "Settlements, and calls admitted without the store, that are not yet written to it.",
	}, func() float64 { n, _ := kept(); return float64(n) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "llmguard_budget_journal_bytes", Help: "Size of llmguard_budget_journal_records.",
	}, func() float64 { _, size := kept(); return float64(size) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "llmguard_budget_store_clock_skew_seconds",
		Help: "Minimum lead of Redis's clock over this machine's; negative if it is behind. On a cluster: of the server " +
			"that is furthest off.",
	}, func() float64 { return skew().Seconds() })
}

// NewMetrics registers the Metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	return &Metrics{
		clockSteps: f.NewCounter(prometheus.CounterOpts{
			Name: "llmguard_budget_store_clock_steps_total", Help: "Times that Redis's clock jumped by more than half a second.",
		}),
		kept: f.NewCounter(prometheus.CounterOpts{
			Name: "llmguard_budget_journaled_total", Help: "Settlements that the store did not accept immediately.",
		}),
		emptied: f.NewCounter(prometheus.CounterOpts{
			Name: "llmguard_budget_store_emptied_total", Help: "Times that this process found that the store had lost its data.",
		}),
		replayed: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_budget_replayed_total",
			Help: "Settlements written again, from the journal or after a failover (tail), by result: new, known, listed for " +
				"reconciliation.",
		}, []string{"from", "result"}),
	}
}
