package budget

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts money in nano-USD as floats: enough for graphs, the ledger is
// exact.
type metrics struct {
	holds      *prometheus.CounterVec // by outcome
	refusals   *prometheus.CounterVec // by limit and mode
	cost       prometheus.Counter
	overrun    prometheus.Counter
	estimated  prometheus.Counter
	expired    prometheus.Counter
	lost       prometheus.Counter
	late       prometheus.Counter
	reconciled prometheus.Counter

	exported, exportErrors, exportGaps prometheus.Counter

	seconds *prometheus.HistogramVec // by script
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "llmguard_budget_" + name, Help: help})
	}
	m := &metrics{
		holds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_budget_holds_total", Help: "Holds asked for, by outcome: held, refused, ended, unavailable or error.",
		}, []string{"outcome"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_budget_refusals_total", Help: "Calls that did not fit a limit; in mode shadow they passed.",
		}, []string{"limit", "mode"}),
		cost:         counter("settled_nanodollars_total", "Cost of settled calls, in nano-USD."),
		overrun:      counter("overrun_nanodollars_total", "Cost of settled calls above their holds, in nano-USD."),
		estimated:    counter("estimated_nanodollars_total", "Cost charged by estimate, in nano-USD, expired holds included."),
		expired:      counter("expired_holds_total", "Holds whose lease ran out."),
		lost:         counter("lost_holds_total", "Holds of this process that it failed to renew in time."),
		late:         counter("late_settles_total", "Settles of holds that had expired, were voided or were lost."),
		reconciled:   counter("reconciled_settles_total", "Settles that came too late to be charged by themselves."),
		exported:     counter("exported_entries_total", "Ledger entries written to export files."),
		exportErrors: counter("export_errors_total", "Rounds in which an org's ledger could not be exported."),
		exportGaps:   counter("export_gaps_total", "Times that entries may have been trimmed before they were exported."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "llmguard_budget_script_seconds", Help: "Time of one script, with the way to Redis and back.",
			Buckets: []float64{.0001, .0002, .0005, .001, .002, .005, .01, .025, .05, .1, .25, 1},
		}, []string{"script"}),
	}
	if reg != nil {
		reg.MustRegister(m.holds, m.refusals, m.cost, m.overrun, m.estimated, m.expired, m.lost, m.late, m.reconciled, m.seconds,
			m.exported, m.exportErrors, m.exportGaps)
	}
	return m
}

func (m *metrics) held(err error) {
	outcome := "held"
	var refused *ExceededError
	switch {
	case err == nil:
	case errors.As(err, &refused):
		outcome = "refused"
	case errors.Is(err, ErrEnded):
		outcome = "ended"
	case errors.Is(err, ErrUnavailable):
		outcome = "unavailable"
	default:
		outcome = "error"
	}
	m.holds.WithLabelValues(outcome).Inc()
}

// refused counts each limit that a call did not fit, also in the shadow.
func (m *metrics) refused(statuses []Status) {
	for _, s := range statuses {
		if s.Refused {
			m.refusals.WithLabelValues(s.LimitID, string(s.Mode)).Inc()
		}
	}
}

func (m *metrics) settled(r Receipt, estimated bool) {
	if r.Replayed {
		return
	}
	m.cost.Add(float64(r.Charged))
	m.overrun.Add(float64(r.Overrun))
	if estimated {
		m.estimated.Add(float64(r.Charged))
	}
	if r.Late {
		m.late.Inc()
	}
}

func (m *metrics) expire(nano int64) {
	m.expired.Inc()
	m.estimated.Add(float64(nano))
}
