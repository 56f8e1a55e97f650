package guard

import (
	"maps"
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// boundCollector reports what orgs can spend, at scrape time.
type boundCollector struct {
	bounds          func() map[string]Bound
	hour, unbounded *prometheus.Desc
}

// RegisterBounds registers metrics of what each org can spend under its limits.
func RegisterBounds(reg prometheus.Registerer, bounds func() map[string]Bound) error {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("llmguard_guard_"+name, help, labels, nil)
	}
	return reg.Register(&boundCollector{
		bounds: bounds,
		hour: desc("org_worst_hour_usd",
			"Maximum in USD that an org can spend in one clock hour under its cost limits and the spend caps; +Inf without a "+
				"bound. Beyond 500 orgs, sorted by id, the rest is summed up as _other.", "org"),
		unbounded: desc("unbounded_orgs",
			"Orgs with calls that no enforced limit on cost, tokens or requests and no spend cap bounds."),
	})
}

// Describe implements prometheus.Collector.
func (c *boundCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.hour; ch <- c.unbounded }

// Collect implements prometheus.Collector.
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
