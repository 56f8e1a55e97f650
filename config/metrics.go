package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics reports the configuration that a process runs with. It is safe for concurrent use.
type Metrics struct {
	successful, at, hash, deployment, restart prometheus.Gauge
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
		deployment: gauge(prometheus.GaugeOpts{
			Name: "llmguard_config_deployment",
			Help: "48 bits of a hash of Redis's address, database and prefix, the same in all processes of a deployment.",
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
	m.deployment.Set(c.Deployment())
}

// Hash returns the part of the file's SHA-256 that the metric reports.
func (c *Config) Hash() float64 { return gaugeOf(c.Sum) }

// Deployment returns a number for the place where the deployment's data is: the Redis, its database and the prefix of
// keys. Credentials do not count.
func (c *Config) Deployment() float64 {
	at := fmt.Sprint(c.Redis.Addresses, c.Redis.MasterName, c.Redis.DB)
	if u, err := url.Parse(c.Redis.URL.Reveal()); err == nil && u.Host+u.Path != "" {
		at = fmt.Sprint([]string{u.Host}, "", cmp.Or(strings.Trim(u.Path, "/"), "0"))
	}
	return gaugeOf(sha256.Sum256([]byte(c.Redis.Prefix + " " + at)))
}

// gaugeOf returns 48 bits of a hash, which a gauge has exactly.
func gaugeOf(sum [32]byte) float64 {
	var b [8]byte
	copy(b[2:], sum[:6])
	return float64(binary.BigEndian.Uint64(b[:]))
}

// Refused records that a new configuration was rejected.
func (m *Metrics) Refused() { m.successful.Set(0) }
