package budget

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/pricing"
)

// metrics counts money in USD as floats, which is enough for graphs; the ledger is exact.
type metrics struct {
	holds      *prometheus.CounterVec    // by outcome
	taken      func() prometheus.Counter // those held; looked up once
	refusals   *prometheus.CounterVec    // by limit and mode
	shadow     *prometheus.HistogramVec  // by limit
	caps       *prometheus.CounterVec    // refusals by provider, limit and mode
	cost       prometheus.Counter
	overrun    prometheus.Counter
	estimated  prometheus.Counter
	expired    prometheus.Counter
	lost       prometheus.Counter
	late       prometheus.Counter
	reconciled prometheus.Counter

	seconds map[string]prometheus.Observer // by script
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "llmguard_budget_" + name, Help: help})
	}
	m := &metrics{
		holds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_budget_holds_total",
			Help: "Holds requested, by outcome: held, refused, ended, unavailable or error.",
		}, []string{"outcome"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_budget_refusals_total", Help: "Calls over a limit; in mode shadow they were admitted.",
		}, []string{"limit", "mode"}),
		shadow: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "llmguard_budget_shadow_wait_seconds",
			Help: "How long calls over a limit in shadow mode would have waited. Calls larger than the whole limit are not " +
				"included.",
			Buckets: []float64{1, 10, 60, 300, 1800, 3600, 21600, 86400},
		}, []string{"limit"}),
		caps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_budget_cap_refusals_total",
			Help: "Calls over a spend cap of a provider or (no provider) of the deployment; in mode shadow they were admitted.",
		}, []string{"provider", "limit", "mode"}),
		cost:       counter("settled_usd_total", "Cost of settled calls, in USD."),
		overrun:    counter("overrun_usd_total", "Cost of settled calls above their holds, in USD."),
		estimated:  counter("estimated_usd_total", "Cost charged by estimate, in USD, expired holds included."),
		expired:    counter("expired_holds_total", "Holds whose lease expired."),
		lost:       counter("lost_holds_total", "Holds of this process that it failed to renew in time."),
		late:       counter("late_settles_total", "Settlements of holds that had expired, were voided or were lost."),
		reconciled: counter("reconciled_settles_total", "Settlements too late to be charged automatically."),
		seconds:    map[string]prometheus.Observer{},
	}
	m.taken = sync.OnceValue(func() prometheus.Counter { return m.holds.WithLabelValues("held") })
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "llmguard_budget_script_seconds", Help: "Duration of one script, including the network.",
		Buckets: []float64{.0001, .0002, .0005, .001, .002, .005, .01, .025, .05, .1, .25, 1},
	}, []string{"script"})
	for _, name := range loaded.names {
		m.seconds[name] = seconds.WithLabelValues(name)
	}
	if reg != nil {
		reg.MustRegister(m.holds, m.refusals, m.shadow, m.caps, m.cost, m.overrun, m.estimated, m.expired, m.lost, m.late,
			m.reconciled, seconds)
	}
	return m
}

// took records how many seconds a script took.
func (m *metrics) took(script string, seconds float64) { m.seconds[script].Observe(seconds) }

func (m *metrics) held(err error) {
	if err == nil {
		m.taken().Inc()
		return
	}
	m.holds.WithLabelValues(refusalOf(err)).Inc()
}

// refusalOf returns the outcome label of a hold that was not taken.
func refusalOf(err error) string {
	var refused *ExceededError
	switch {
	case errors.As(err, &refused):
		return "refused"
	case errors.Is(err, ErrEnded):
		return "ended"
	case errors.Is(err, ErrFull):
		return "full"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	default:
		return "error"
	}
}

// refused counts each limit that refused a call, including those in shadow mode. The limits of caps
// are counted by capped.
func (m *metrics) refused(org string, statuses []Status) {
	if unlisted(org) {
		return
	}
	for _, s := range statuses {
		if s.Refused {
			m.refusals.WithLabelValues(s.LimitID, string(s.Mode)).Inc()
			if s.Mode == Shadow && !s.Never {
				m.shadow.WithLabelValues(s.LimitID).Observe(s.Wait.Seconds())
			}
		}
	}
}

// capped counts each limit of a cap that refused a call, including those in shadow mode.
func (m *metrics) capped(c Cap, statuses []Status) {
	for _, s := range statuses {
		if s.Refused {
			m.caps.WithLabelValues(c.Provider, s.LimitID, string(s.Mode)).Inc()
		}
	}
}

// capRefused is capped for the error of a cap.
func (m *metrics) capRefused(c Cap, why error) {
	var e *ExceededError
	if errors.As(why, &e) {
		m.capped(c, e.Statuses)
	}
}

func (m *metrics) settled(r Receipt, estimated bool) {
	if r.Replayed {
		return
	}
	m.cost.Add(r.Charged.Float())
	m.overrun.Add(r.Overrun.Float())
	if estimated {
		m.estimated.Add(r.Charged.Float())
	}
	if r.Late {
		m.late.Inc()
	}
}

func (m *metrics) expire(nano int64) {
	m.expired.Inc()
	m.estimated.Add(pricing.Nano(nano).Float())
}

// capsTimeout bounds the reading of all caps per scrape.
const capsTimeout = 2 * time.Second

// capCollector reads Redis at scrape time, so every process reports the same.
type capCollector struct {
	ctx   context.Context
	store *Store
	caps  func() []Cap
	gauges
}

// gauges are the usage and the amounts of limits.
type gauges struct{ used, held, amount *prometheus.Desc }

// Describe implements prometheus.Collector.
func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.used
	ch <- g.held
	ch <- g.amount
}

// send sends the gauges of limits in these states.
func (g gauges) send(ch chan<- prometheus.Metric, list []Status, labels func(*Status) []string) {
	for i := range list {
		s := &list[i]
		for d, n := range map[*prometheus.Desc]int64{g.used: s.Used, g.held: s.Held, g.amount: s.Amount} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, inUnit(s.Metric, n), labels(s)...)
		}
	}
}

// RegisterCaps exports the usage and amounts of the current caps' limits until ctx ends. Money is
// in USD as floats, which is enough for graphs.
func RegisterCaps(ctx context.Context, reg prometheus.Registerer, s *Store, caps func() []Cap) error {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("llmguard_budget_"+name, help+
			" Without a provider: of the deployment. In the metric's unit; cost in USD.",
			[]string{"provider", "limit", "metric"}, nil)
	}
	return reg.Register(&capCollector{
		ctx: ctx, store: s, caps: caps, gauges: gauges{
			used:   desc("cap_used", "Current usage of a spend cap, including open holds."),
			held:   desc("cap_held", "The part of a spend cap's usage that open holds may give back."),
			amount: desc("cap_amount", "Amount of a spend cap."),
		},
	})
}

// inUnit converts an amount of a limit to the unit of metrics: money in USD.
func inUnit(m Metric, n int64) float64 {
	if m == Cost {
		return pricing.Nano(n).Float()
	}
	return float64(n)
}

// Collect implements prometheus.Collector. A cap that cannot be read is left out.
func (c *capCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(c.ctx, capsTimeout)
	defer cancel()
	for _, spend := range c.caps() {
		list, err := c.store.PeekCap(ctx, spend)
		if err != nil {
			c.store.opts.Log.Warn("spend cap not read for a scrape", "cap", spend.String(), "err", err)
			continue
		}
		c.send(ch, list, func(s *Status) []string { return []string{spend.Provider, s.LimitID, string(s.Metric)} })
	}
}
