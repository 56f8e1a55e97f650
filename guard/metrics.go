package guard

import (
	"errors"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
)

type metrics struct {
	holds        *prometheus.CounterVec
	admitted     func() prometheus.Counter // of holds, looked up once
	calls        *prometheus.CounterVec
	cost         *prometheus.CounterVec
	tokens       *prometheus.CounterVec
	underpriced  *prometheus.CounterVec
	faults       *prometheus.CounterVec
	settleErrors prometheus.Counter
	without      *prometheus.CounterVec
	extensions   *prometheus.CounterVec
	firstByte    *prometheus.HistogramVec
	orgs         *orgMetrics
	refused      *refusedCalls

	mu     sync.RWMutex
	series map[seriesKey]*series
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		series: map[seriesKey]*series{}, orgs: newOrgMetrics(reg), refused: newRefusedCalls(reg),
		holds: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_admissions_total",
			Help: "Holds requested, by outcome: admitted, refused, never (larger than the whole limit), store_error.",
		}, []string{"outcome"}),
		calls: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_calls_total", Help: "Completed calls, by pool, priced model and outcome.",
		}, []string{"pool", "model", "outcome"}),
		cost: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_cost_usd_total",
			Help: "Cost charged in USD, by priced model and by whether it is exact or estimated.",
		}, []string{"model", "kind"}),
		tokens: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_tokens_total",
			Help: "Tokens billed, by priced model and class: input, cached_input, output, reasoning.",
		}, []string{"model", "class"}),
		faults: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_usage_faults_total",
			Help: "Answers whose usage was not believed, by fault: low_input, high_input, low_output, high_output, high_calls " +
				"(it contradicts what was sent and seen), outdated (text followed it), malformed. They are charged by estimate.",
		}, []string{"fault"}),
		underpriced: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_underpriced_usd_total",
			Help: "Cost charged above the price of the request, in USD, by pool and reason: model (a more expensive one " +
				"answered), cost (the answer reports more), output (it exceeded its output limit).",
		}, []string{"pool", "reason"}),
		settleErrors: f.NewCounter(prometheus.CounterOpts{
			Name: "llmguard_guard_settle_errors_total",
			Help: "Settlements that could not be written immediately and went to the journal.",
		}),
		without: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_without_store_total",
			Help: "Calls decided by on_store_failure local or allow while the store was unavailable, by mode and outcome: " +
				"admitted, refused.",
		}, []string{"mode", "outcome"}),
		extensions: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_extensions_total",
			Help: "Extensions of holds that grow with their stream, by outcome: extended, refused, store_error, ended (the " +
				"hold had already expired).",
		}, []string{"outcome"}),
		firstByte: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "llmguard_guard_upstream_first_byte_seconds",
			Help:    "Time from sending a request to receiving the provider's response headers, by pool.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300},
		}, []string{"pool"}),
	}
	for _, fault := range usageFaults { // start at zero, so that the first one is an increase
		m.faults.WithLabelValues(string(fault))
	}
	m.admitted = sync.OnceValue(func() prometheus.Counter { return m.holds.WithLabelValues("admitted") })
	return m
}

func watchStops(reg prometheus.Registerer, count func() (all, orgs float64)) {
	gauge := func(scope string, value func() float64) {
		promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
			Name: "llmguard_guard_stopped", ConstLabels: prometheus.Labels{"scope": scope},
			Help: "Stopped spending: deployment is 1 while all of it is stopped, org the number of orgs that are stopped.",
		}, value)
	}
	gauge("deployment", func() float64 { all, _ := count(); return all })
	gauge("org", func() float64 { _, orgs := count(); return orgs })
}

// watchBrakes registers a gauge of what brakes stop.
func watchBrakes(reg prometheus.Registerer, active func() float64) {
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "llmguard_guard_brakes_active", Help: "Subjects that a brake stops now: action stop or ask.",
	}, active)
}

func (m *metrics) held(org string, err error) {
	o := m.orgs.of(org)
	if err == nil {
		m.admitted().Inc()
		o.admitted.Inc()
		return
	}
	var exceeded *budget.ExceededError
	switch {
	case errors.As(err, &exceeded) && exceeded.Binding.Never:
		m.holds.WithLabelValues("never").Inc()
		o.denied.Inc()
	case errors.As(err, &exceeded):
		m.holds.WithLabelValues("refused").Inc()
		o.refused.Inc()
	default:
		m.holds.WithLabelValues("store_error").Inc()
	}
}

func (m *metrics) extended(err error) {
	var exceeded *budget.ExceededError
	outcome := "store_error"
	switch {
	case err == nil:
		outcome = "extended"
	case errors.As(err, &exceeded):
		outcome = "refused"
	case errors.Is(err, budget.ErrEnded):
		outcome = "ended"
	}
	m.extensions.WithLabelValues(outcome).Inc()
}

// series are the metrics of the calls of one org, pool and model, looked up once.
type series struct {
	org       *orgSeries
	firstByte prometheus.Observer
	calls     map[Outcome]prometheus.Counter

	exact, estimated                      prometheus.Counter // cost
	input, cachedInput, output, reasoning prometheus.Counter // tokens
}

type seriesKey struct{ org, pool, model string }

// of returns the series of a call's org, pool and model.
func (m *metrics) of(c *Call) *series {
	org := m.orgs.of(c.Plan.Caller.Org.ID)
	key := seriesKey{org.name, c.Plan.Target.Pool, c.Plan.Price.Model}
	m.mu.RLock()
	s := m.series[key]
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	tokens := func(class string) prometheus.Counter { return m.tokens.WithLabelValues(key.model, class) }
	s = &series{
		org:       org,
		calls:     map[Outcome]prometheus.Counter{},
		firstByte: m.firstByte.WithLabelValues(key.pool),
		exact:     m.cost.WithLabelValues(key.model, "exact"), estimated: m.cost.WithLabelValues(key.model, "estimated"),
		input: tokens("input"), cachedInput: tokens("cached_input"), output: tokens("output"), reasoning: tokens("reasoning"),
	}
	for _, why := range reasons { // start at zero, so that the first one is an increase
		m.underpriced.WithLabelValues(key.pool, string(why))
	}
	for _, o := range outcomes {
		s.calls[o] = m.calls.WithLabelValues(key.pool, key.model, string(o))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.series[key] = s
	return s
}

// ended counts a call once its result is known.
func (m *metrics) ended(c *Call) {
	r, s := &c.Result, m.of(c)
	s.calls[r.Outcome].Inc()
	if r.FirstByte > 0 {
		s.firstByte.Observe(r.FirstByte.Seconds())
	}
}

// settled counts money once it is in the ledger, so that metrics and ledger agree.
func (s *series) settled(u pricing.Usage, estimated bool, receipt budget.Receipt) {
	if receipt.Replayed {
		return
	}
	cost := s.exact
	if estimated {
		cost = s.estimated
	}
	cost.Add(receipt.Charged.Float()) // a metric, not the ledger
	s.org.cost.Add(receipt.Charged.Float())
	s.input.Add(float64(u.Input))
	s.cachedInput.Add(float64(u.CachedInput))
	s.output.Add(float64(u.Output))
	s.reasoning.Add(float64(u.Reasoning))
}

// maxOrgSeries bounds the number of orgs with metrics of their own. The rest count under
// otherOrgs.
const (
	maxOrgSeries = 500
	otherOrgs    = "_other"
)

// orgSeries are the metrics of one org, looked up once.
type orgSeries struct {
	name                      string // value of the label
	cost                      prometheus.Counter
	admitted, refused, denied prometheus.Counter
}

// orgMetrics holds the series of the orgs that called first.
type orgMetrics struct {
	cost       *prometheus.CounterVec
	admissions *prometheus.CounterVec
	brakes     *prometheus.CounterVec
	mu         sync.RWMutex
	series     map[string]*orgSeries
}

func newOrgMetrics(reg prometheus.Registerer) *orgMetrics {
	f := promauto.With(reg)
	return &orgMetrics{
		series: map[string]*orgSeries{},
		cost: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_org_cost_usd_total",
			Help: "Cost charged in USD, by org. After the first 500 orgs since the start, others are counted as _other.",
		}, []string{"org"}),
		admissions: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_org_admissions_total",
			Help: "Holds requested, by org and outcome: admitted, refused (a limit has no capacity now), never (larger than " +
				"the whole limit).",
		}, []string{"org", "outcome"}),
		brakes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_guard_brakes_fired_total", Help: "Brakes that fired, once per subject until they are released.",
		}, []string{"org", "brake", "action"}),
	}
}

func (m *orgMetrics) of(org string) *orgSeries {
	m.mu.RLock()
	s := m.series[org]
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.series) >= maxOrgSeries && m.series[org] == nil {
		org = otherOrgs
	}
	s = m.series[org]
	if s == nil { // also once for all others
		outcome := func(o string) prometheus.Counter { return m.admissions.WithLabelValues(org, o) }
		s = &orgSeries{
			name: org, cost: m.cost.WithLabelValues(org), admitted: outcome("admitted"),
			refused: outcome("refused"), denied: outcome("never"),
		}
		m.series[org] = s
	}
	return s
}

// desc describes a metric that is computed at scrape time.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("llmguard_guard_"+name, help, labels, nil)
}

// outageCollector reports at scrape time for which orgs the store is unavailable.
type outageCollector struct {
	outage *Outage
	away   *prometheus.Desc
}

func newOutageCollector(out *Outage) *outageCollector {
	return &outageCollector{outage: out, away: desc("store_away_orgs",
		"Orgs for which this process treats the store as unavailable, by what happens to their calls (on_store_failure): "+
			"deny (refused), local (admitted within local shares of the limits), allow (admitted unchecked).", "mode")}
}

func (c *outageCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.away }

// Collect implements prometheus.Collector. It checks the store first, because an org without
// calls would otherwise be reported for hours after an outage.
func (c *outageCollector) Collect(ch chan<- prometheus.Metric) {
	c.outage.Check()
	away := c.outage.Away()
	for _, mode := range []StoreFailure{Deny, Local, Allow} {
		ch <- prometheus.MustNewConstMetric(c.away, prometheus.GaugeValue, float64(away[mode]), mode)
	}
}

// boundCollector reports what orgs can spend, at scrape time.
type boundCollector struct {
	bounds          func() map[string]Bound
	hour, unbounded *prometheus.Desc
}

// RegisterBounds registers metrics of what each org can spend under its limits.
func RegisterBounds(reg prometheus.Registerer, bounds func() map[string]Bound) error {
	return reg.Register(&boundCollector{
		bounds: bounds,
		hour: desc("org_worst_hour_usd",
			"Maximum in USD that an org can spend in one clock hour under its cost limits and the spend caps; +Inf without a "+
				"bound. Beyond 500 orgs, sorted by id, the rest is summed up as _other.", "org"),
		unbounded: desc("unbounded_orgs",
			"Orgs with calls that no enforced limit on cost, tokens or requests and no spend cap bounds."),
	})
}

func (c *boundCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.hour; ch <- c.unbounded }

func (c *boundCollector) Collect(ch chan<- prometheus.Metric) {
	all := c.bounds()
	open := 0
	for _, b := range all {
		if b.None {
			open++
		}
	}
	ch <- prometheus.MustNewConstMetric(c.unbounded, prometheus.GaugeValue, float64(open))
	ids := slices.Sorted(maps.Keys(all))
	others := 0.0
	for i, id := range ids {
		if i >= maxOrgSeries {
			others += all[id].usd()
			continue
		}
		ch <- prometheus.MustNewConstMetric(c.hour, prometheus.GaugeValue, all[id].usd(), id)
	}
	if len(ids) > maxOrgSeries {
		ch <- prometheus.MustNewConstMetric(c.hour, prometheus.GaugeValue, others, otherOrgs)
	}
}

// usd returns Hour in USD, +Inf for Unlimited.
func (b Bound) usd() float64 {
	if b.Hour == Unlimited {
		return math.Inf(1)
	}
	return float64(b.Hour) / 1e9
}
