package guard

import "github.com/prometheus/client_golang/prometheus"

// outageCollector reports at scrape time for which orgs the store is unavailable.
type outageCollector struct {
	outage *Outage
	away   *prometheus.Desc
}

func newOutageCollector(out *Outage) *outageCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &outageCollector{outage: out, away: desc("llmguard_guard_store_away_orgs",
		"Orgs for which this process treats the store as unavailable, by what happens to their calls (on_store_failure): "+
			"deny (refused), local (admitted within local shares of the limits), allow (admitted unchecked).", "mode")}
}

// Describe implements prometheus.Collector.
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
