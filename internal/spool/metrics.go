package spool

import "github.com/prometheus/client_golang/prometheus"

// register exports a budget's figures; place is where its bytes are stored.
func (b *Budget) register(r prometheus.Registerer, place string) {
	if r == nil {
		return
	}
	labels := prometheus.Labels{"place": place}
	gauge := func(o prometheus.GaugeOpts, value func() int64) {
		o.ConstLabels = labels
		r.MustRegister(prometheus.NewGaugeFunc(o, func() float64 { return float64(value()) }))
	}
	gauge(prometheus.GaugeOpts{
		Name: "llmguard_spool_limit_bytes",
		Help: "Maximum size of bodies and answers in transit, in bytes, by place: memory or disk.",
	}, func() int64 { return b.total })
	gauge(prometheus.GaugeOpts{
		Name: "llmguard_spool_used_bytes",
		Help: "Size of bodies and answers in transit, in bytes, by place: memory or disk.",
	}, b.Used)
	gauge(prometheus.GaugeOpts{
		Name: "llmguard_spool_waiting", Help: "Bodies and answers that are waiting for space, by place: memory or disk.",
	}, b.Waiting)
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name:        "llmguard_spool_refused_total",
		Help:        "Bodies and answers refused because no space became free in time, by place: memory or disk.",
		ConstLabels: labels,
	}, func() float64 { return float64(b.Refused()) }))
}
