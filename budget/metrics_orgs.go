package budget

import (
	"context"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/budget/ledger"
)

// maxOrgsScraped bounds the orgs whose limits are read per scrape, and with that the number of
// series. Orgs beyond it, in order of ids, are left out.
const maxOrgsScraped = 200

// orgCollector reads Redis at scrape time, so every process reports the same.
type orgCollector struct {
	ctx                  context.Context
	store                *Store
	orgs                 func() map[string][]Limit
	reported, configured *prometheus.Desc
	gauges
}

// RegisterOrgs exports the usage and amounts of each org's limits that count the whole org, not its
// users, until ctx ends. Money is in USD as floats, which is enough for graphs. Only the first 200
// orgs by id are read.
func RegisterOrgs(ctx context.Context, reg prometheus.Registerer, s *Store, orgs func() map[string][]Limit) error {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("llmguard_budget_"+name, help, labels, nil)
	}
	labels := []string{"org", "limit", "metric", "mode"}
	return reg.Register(&orgCollector{
		ctx: ctx, store: s, orgs: orgs,
		gauges: gauges{
			used: desc("org_limit_used",
				"Current usage of an org limit, including open holds. In the metric's unit; cost in USD.", labels...),
			held:   desc("org_limit_held", "The part of an org limit's usage that open holds may give back.", labels...),
			amount: desc("org_limit_amount", "Amount of an org limit.", labels...),
		},
		reported:   desc("orgs_reported", "Orgs whose limits are shown in llmguard_budget_org_limit_*, at most 200."),
		configured: desc("orgs_configured", "Configured orgs."),
	})
}

// Describe implements prometheus.Collector.
func (c *orgCollector) Describe(ch chan<- *prometheus.Desc) {
	c.gauges.Describe(ch)
	ch <- c.reported
	ch <- c.configured
}

// Collect implements prometheus.Collector. An org that cannot be read is left out.
func (c *orgCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(c.ctx, capsTimeout)
	defer cancel()
	all := c.orgs()
	ids := slices.Sorted(maps.Keys(all))
	reported := 0
	for _, id := range ids[:min(len(ids), maxOrgsScraped)] {
		if c.org(ctx, ch, id, all[id]) {
			reported++
		}
	}
	ch <- prometheus.MustNewConstMetric(c.reported, prometheus.GaugeValue, float64(reported))
	ch <- prometheus.MustNewConstMetric(c.configured, prometheus.GaugeValue, float64(len(ids)))
}

func (c *orgCollector) org(ctx context.Context, ch chan<- prometheus.Metric, id string, limits []Limit) bool {
	own := make([]Limit, 0, len(limits))
	for _, l := range limits {
		if l.Subject == Org && l.Mode != Off {
			own = append(own, l)
		}
	}
	if len(own) == 0 {
		return true
	}
	list, err := c.store.Peek(ctx, own, ledger.Call{Org: id})
	if err != nil {
		c.store.opts.Log.Warn("limits not read for a scrape", "org", id, "err", err)
		return false
	}
	c.send(ch, list, func(s *Status) []string { return []string{id, s.LimitID, string(s.Metric), string(s.Mode)} })
	return true
}
