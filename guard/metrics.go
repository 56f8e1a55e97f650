package guard

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/llmguard/llmguard/budget"
)

type metrics struct {
	holds        *prometheus.CounterVec
	calls        *prometheus.CounterVec
	cost         *prometheus.CounterVec
	tokens       *prometheus.CounterVec
	faults       prometheus.Counter
	settleErrors prometheus.Counter
	firstByte    *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		holds: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_admissions_total",
			Help: "Holds asked for, by outcome: admitted, refused, never (cannot fit at all), store_error.",
		}, []string{"outcome"}),
		calls: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_calls_total", Help: "Calls ended, by pool, priced model and outcome.",
		}, []string{"pool", "model", "outcome"}),
		cost: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_cost_nano_usd_total",
			Help: "Cost charged in nano-USD, by priced model and by whether it is exact or estimated.",
		}, []string{"model", "kind"}),
		tokens: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_tokens_total", Help: "Tokens billed, by priced model and class: input, cached_input, output, reasoning.",
		}, []string{"model", "class"}),
		faults: f.NewCounter(prometheus.CounterOpts{
			Name: "llmguard_guard_usage_faults_total", Help: "Answers whose usage was negative, absurd or of the wrong type, and was clamped.",
		}),
		settleErrors: f.NewCounter(prometheus.CounterOpts{
			Name: "llmguard_guard_settle_errors_total", Help: "Failed attempts to write a settlement; each is tried again.",
		}),
		firstByte: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "llmguard_guard_upstream_first_byte_seconds", Help: "Time from sending a request to the provider's response header, by pool.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300},
		}, []string{"pool"}),
	}
}

func (m *metrics) held(err error) {
	var exceeded *budget.ExceededError
	switch {
	case err == nil:
		m.holds.WithLabelValues("admitted").Inc()
	case errors.As(err, &exceeded) && exceeded.Binding.Never:
		m.holds.WithLabelValues("never").Inc()
	case errors.As(err, &exceeded):
		m.holds.WithLabelValues("refused").Inc()
	default:
		m.holds.WithLabelValues("store_error").Inc()
	}
}

// ended counts a call once its result is known.
func (m *metrics) ended(c *Call) {
	r := &c.Result
	m.calls.WithLabelValues(c.Target.Pool, c.Price.Model, string(r.Outcome)).Inc()
	if r.FirstByte > 0 {
		m.firstByte.WithLabelValues(c.Target.Pool).Observe(r.FirstByte.Seconds())
	}
	if r.Fault != "" {
		m.faults.Inc()
	}
}

// settled counts money once it is in the ledger, so that metrics and ledger
// agree.
func (m *metrics) settled(c *Call, receipt budget.Receipt) {
	if receipt.Replayed {
		return
	}
	kind := "exact"
	if c.Result.Estimated {
		kind = "estimated"
	}
	u, model := &c.Result.Usage, c.Price.Model
	m.cost.WithLabelValues(model, kind).Add(float64(receipt.Charged)) // a metric, not the ledger
	m.tokens.WithLabelValues(model, "input").Add(float64(u.Input))
	m.tokens.WithLabelValues(model, "cached_input").Add(float64(u.CachedInput))
	m.tokens.WithLabelValues(model, "output").Add(float64(u.Output))
	m.tokens.WithLabelValues(model, "reasoning").Add(float64(u.Reasoning))
}
