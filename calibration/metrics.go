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
			Help: "Input tokens per estimated token in force, by priced model, class of text and kind: mean, hold, or seen without the prior. Models this process has served.",
		}, []string{"model", "class", "kind"}),
		observations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_calibration_observations_total",
			Help: "Settled calls observed, by what of them (input, output) and outcome: taken, base_only, outlier, dropped (enough of them this round).",
		}, []string{"of", "outcome"}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "llmguard_calibration_sync_errors_total", Help: "Rounds that could not be written or read; what is known stays in force.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.ratio, m.observations, m.errors)
	}
	return m
}

func (m *metrics) observed(of, outcome string) { m.observations.WithLabelValues(of, outcome).Inc() }

// show sets the gauges of the models this process has served; their names are
// the catalogue's.
func (p *pending) show(m *metrics, s *snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, asked := range p.names {
		known := s.inputs[asked]
		if known == nil {
			continue
		}
		for class, f := range known.classes {
			if f.entry == nil || f.entry.n == 0 {
				continue
			}
			label := Class(class).String()
			m.ratio.WithLabelValues(name, label, "mean").Set(float64(f.mean) / 1000)
			m.ratio.WithLabelValues(name, label, "hold").Set(float64(f.hold) / 1000)
			m.ratio.WithLabelValues(name, label, "seen").Set(float64(f.entry.ratio()) / 1000)
		}
	}
}
