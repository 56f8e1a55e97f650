package pricing

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Float returns the amount in USD for metrics, which are floats. Do not use it for anything else.
func (n Nano) Float() float64 { return float64(n) / float64(NanoPerUSD) }

// Register adds gauges that read the current catalogue at each scrape:
// llmguard_pricing_age_seconds, of the stalest price (alert above 45 days), and
// llmguard_pricing_models. A nil Registerer registers nothing.
func Register(reg prometheus.Registerer, current func() *Catalogue, now func() time.Time) error {
	if reg == nil {
		return nil
	}
	for _, g := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "llmguard_pricing_age_seconds",
			Help: "Time since the oldest price in force was last checked.",
		}, func() float64 { return current().Age(now()).Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "llmguard_pricing_models",
			Help: "Models that have a price.",
		}, func() float64 { return float64(len(current().Entries())) }),
	} {
		if err := reg.Register(g); err != nil {
			return err
		}
	}
	return nil
}
