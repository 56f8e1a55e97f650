package config

import (
	"encoding/binary"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics reports the configuration that a process runs with. It is safe for concurrent use.
type Metrics struct {
	successful, at, hash, restart prometheus.Gauge
}

// NewMetrics returns metrics registered with reg, or unregistered ones if reg is nil.
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
			Help: "1 if the last reload succeeded, 0 if it failed and the previous configuration is still in use.",
		}),
		at: gauge(prometheus.GaugeOpts{
			Name: "llmguard_config_last_reload_success_timestamp_seconds",
			Help: "When the current configuration was read, in Unix seconds.",
		}),
		hash: gauge(prometheus.GaugeOpts{
			Name: "llmguard_config_hash",
			Help: "48 bits of the SHA-256 of the current file, the same in all processes that run with the same file.",
		}),
		restart: gauge(prometheus.GaugeOpts{
			Name: "llmguard_config_restart_needed",
			Help: "Number of changed fields in the file that need a restart to take effect.",
		}),
	}
}

// Taken records that a configuration is in use, and how many of its fields require a restart.
func (m *Metrics) Taken(c *Config, restart int, at time.Time) {
	m.successful.Set(1)
	m.at.Set(float64(at.UnixMilli()) / 1000)
	m.restart.Set(float64(restart))
	m.hash.Set(c.Hash())
}

// Hash returns the part of the file's SHA-256 that the metric reports.
func (c *Config) Hash() float64 {
	var b [8]byte
	copy(b[2:], c.Sum[:6])
	return float64(binary.BigEndian.Uint64(b[:]))
}

// Refused records that a new configuration was rejected.
func (m *Metrics) Refused() { m.successful.Set(0) }
