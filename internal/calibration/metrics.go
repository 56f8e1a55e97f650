package calibration

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	ratio        *prometheus.GaugeVec
	observations *prometheus.CounterVec
	errors       prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		ratio: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "llmguard_calibration_ratio",
			Help: "Input tokens per estimated token currently in use, by priced model, class of text and kind: mean, hold " +
				"(the highest of all orgs), or seen (without the prior). Only models that this process has served.",
		}, []string{"model", "class", "kind"}),
		observations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_calibration_observations_total",
			Help: "Settled calls observed, by part (input, output) and outcome: taken, base_only, outlier, dropped (enough " +
				"samples this round).",
		}, []string{"of", "outcome"}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "llmguard_calibration_sync_errors_total",
			Help: "Sync rounds that could not be written or read; known values stay in use.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.ratio, m.observations, m.errors)
	}
	return m
}

func (m *metrics) observed(of, outcome string) { m.observations.WithLabelValues(of, outcome).Inc() }

// show sets the gauges of the models that this process has served, under their names in the
// catalogue.
func (p *pending) show(m *metrics, s *snapshot, limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, asked := range p.names {
		known := s.inputs[asked]
		if known == nil {
			continue
		}
		for class := range classes {
			mean, hold, seen := known.overview(class, limit)
			if seen == 0 {
				continue
			}
			label := class.String()
			m.ratio.WithLabelValues(name, label, "mean").Set(mean / 1000)
			m.ratio.WithLabelValues(name, label, "hold").Set(hold / 1000)
			m.ratio.WithLabelValues(name, label, "seen").Set(seen / 1000)
		}
	}
}

// overview returns the averages over all orgs' calls, per mille, and the highest hold of any
// org; zeros mean that nothing was observed.
func (m *model) overview(class Class, limit int) (mean, hold, seen float64) {
	calls := 0.0
	for org, own := range m.orgs {
		e := own.entry(class)
		if e == nil || e.n == 0 {
			continue
		}
		f, n := m.of(org, class, limit), float64(e.n)
		calls += n
		mean += (float64(f.mean) - mean) * n / calls
		seen += (float64(e.ratio()) - seen) * n / calls
		hold = max(hold, float64(f.hold))
	}
	return mean, hold, seen
}
