package config

import (
	"encoding/binary"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics tells of the configuration that a process runs with. It is safe for
// concurrent use.
type Metrics struct {
	successful, at, hash, restart prometheus.Gauge
}

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	gauge := func(o prometheus.GaugeOpts) prometheus.Gauge {
		g := prometheus.NewGauge(o)
		if reg != nil {
			reg.MustRegister(g)
		}
		return g
	}
	return &Metrics{
		successful: gauge(prometheus.GaugeOpts{
			Name: "llmguard_config_last_reload_successful",
			Help: "1 when the last reload of the configuration was taken, 0 when it was refused and the old one goes on.",
		}),
		at: gauge(prometheus.GaugeOpts{
			Name: "llmguard_config_last_reload_success_timestamp_seconds",
			Help: "When the configuration in force was read, Unix seconds.",
		}),
		hash: gauge(prometheus.GaugeOpts{
			Name: "llmguard_config_hash",
			Help: "48 bits of the SHA-256 of the file in force: processes that run with the same file say the same.",
		}),
		restart: gauge(prometheus.GaugeOpts{
			Name: "llmguard_config_restart_needed",
			Help: "How many fields of the file differ from what runs and need a restart.",
		}),
	}
}

// Taken says that a configuration is in force, and how many of its fields wait
// for a restart.
func (m *Metrics) Taken(c *Config, restart int, at time.Time) {
	m.successful.Set(1)
	m.at.Set(float64(at.UnixMilli()) / 1000)
	m.restart.Set(float64(restart))
	m.hash.Set(c.Hash())
}

// Hash is the file's part of its SHA-256 that the metric reports.
func (c *Config) Hash() float64 {
	var b [8]byte
	copy(b[2:], c.Sum[:6])
	return float64(binary.BigEndian.Uint64(b[:]))
}

// Refused says that a new configuration was not taken.
func (m *Metrics) Refused() { m.successful.Set(0) }
