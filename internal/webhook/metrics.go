package webhook

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/internal/redisconn/asynqdriver"
)

// metrics are the package's metrics; labels come from the event types, the outcomes and the
// reasons.
type metrics struct {
	sent     *prometheus.CounterVec // type
	attempts *prometheus.CounterVec // outcome
	dead     *prometheus.CounterVec // reason
	took     prometheus.Histogram
	waiting  *waiting
}

func newMetrics(reg prometheus.Registerer, s *Sender) *metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "llmguard_webhook_" + name, Help: help}, []string{label})
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("llmguard_webhook_"+name, help, labels, nil)
	}
	m := &metrics{
		sent:     counter("deliveries_total", "Deliveries started, one per event and target, by type.", "type"),
		attempts: counter("attempts_total", "Delivery attempts, by outcome.", "outcome"),
		dead:     counter("dead_total", "Abandoned deliveries, by reason.", "reason"),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "llmguard_webhook_delay_seconds",
			Help:    "Time from an event to its delivery; event times are whole seconds.",
			Buckets: []float64{1, 2, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 72 * 3600},
		}),
		waiting: &waiting{
			tasks: asynqdriver.NewInspector(s.rdb),
			desc: desc("waiting_deliveries",
				"Pending deliveries: due ones, and failed ones that are waiting for another attempt.", "state"),
		},
	}
	// Alerts on an increase would miss a series that starts at 1.
	for _, t := range append(Types(), Omitted) {
		m.sent.WithLabelValues(t)
	}
	for _, outcome := range []string{"delivered", "failed", "refused", "gone"} {
		m.attempts.WithLabelValues(outcome)
	}
	for _, why := range []Reason{Exhausted, Gone, Disabled, Refused, Removed} {
		m.dead.WithLabelValues(string(why))
	}
	if reg != nil {
		reg.MustRegister(m.sent, m.attempts, m.dead, m.took, m.waiting)
	}
	return m
}

func (m *metrics) scrapeIn(ctx context.Context) { m.waiting.ctx.Store(&ctx) }

// waiting reads from Redis at scrape time how many deliveries are pending. It reports nothing
// before Run.
type waiting struct {
	tasks asynqdriver.Inspector
	ctx   atomic.Pointer[context.Context]
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (w *waiting) Describe(ch chan<- *prometheus.Desc) { ch <- w.desc }

// Collect implements prometheus.Collector. There is no sample while Redis is unavailable.
func (w *waiting) Collect(ch chan<- prometheus.Metric) {
	ctx := w.ctx.Load()
	if ctx == nil || (*ctx).Err() != nil {
		return
	}
	info, err := w.tasks.GetQueueInfo(queueName)
	if errors.Is(err, asynq.ErrQueueNotFound) {
		info, err = &asynq.QueueInfo{}, nil
	}
	if err != nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, float64(info.Pending+info.Active), "due")
	ch <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, float64(info.Retry+info.Scheduled), "retry")
}
