package app

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/spool"
)

// newSpool is the room for bodies and answers.
func newSpool(c *config.Config, log *slog.Logger, metrics prometheus.Registerer) *spool.Store {
	o := spool.Options{Memory: int64(c.Memory.Bodies), Disk: int64(c.Memory.Spool), Log: log, Metrics: metrics}
	if o.Memory == 0 {
		o.Memory = max(spool.DefaultMemory(), 2*int64(c.Requests.MaxBody))
	}
	o.Disk = max(o.Disk, 2*int64(c.Requests.MaxBody))
	if c.Memory.Spool == 0 {
		o.Disk = -1
	}
	return spool.New(o)
}
