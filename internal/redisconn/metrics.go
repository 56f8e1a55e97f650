package redisconn

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reuse is how long a reading serves further scrapes.
const reuse = 5 * time.Second

// collector reads INFO at scrape time, so that no separate exporter is needed. What a server
// does not report has no sample.
type collector struct {
	ctx    context.Context
	rdb    DB
	up     *prometheus.Desc
	ping   *prometheus.Desc
	fields []field

	mu   sync.Mutex // held while reading, so that scrapes share one
	read time.Time
	last map[string]report
}

// field is a metric of INFO.
type field struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(facts) (float64, bool)
	more  []string // labels after the node
}

// Register exports what the servers of rdb report about themselves until ctx ends. On a cluster
// these are its primaries.
func Register(ctx context.Context, reg prometheus.Registerer, rdb DB) error {
	return reg.Register(&collector{
		ctx: ctx, rdb: rdb, fields: slices.Concat(memoryFields(), loadFields(), safetyFields()),
		up:   desc("llmguard_redis_up", "1 if the server answers PING within a second."),
		ping: desc("llmguard_redis_ping_seconds", "Round trip of one PING from this process."),
	})
}

func desc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"node"}, more...), nil)
}

func gauge(d *prometheus.Desc, value func(facts) (float64, bool)) field {
	return field{desc: d, kind: prometheus.GaugeValue, value: value}
}

func counter(d *prometheus.Desc, value func(facts) (float64, bool), more ...string) field {
	return field{desc: d, kind: prometheus.CounterValue, value: value, more: more}
}

// number reads a field of INFO.
func number(name string) func(facts) (float64, bool) {
	return func(f facts) (float64, bool) { return f.number(name) }
}

// memoryFields are memory and keys.
func memoryFields() []field {
	keys := func(name string) func(facts) (float64, bool) {
		return func(f facts) (float64, bool) { return f.keys(name) }
	}
	return []field{
		gauge(desc("llmguard_redis_memory_used_bytes", "Memory in use."), number("used_memory")),
		gauge(desc("llmguard_redis_memory_peak_bytes", "Highest memory in use since the server's start."),
			number("used_memory_peak")),
		gauge(desc("llmguard_redis_memory_max_bytes", "The server's maxmemory; 0 without one."), number("maxmemory")),
		gauge(desc("llmguard_redis_memory_fragmentation_ratio", "Resident memory divided by memory in use."),
			number("mem_fragmentation_ratio")),
		gauge(desc("llmguard_redis_keys", "Keys in all databases, also of other programs."), keys("keys")),
		gauge(desc("llmguard_redis_expiring_keys", "Keys that have a lifetime."), keys("expires")),
		counter(desc("llmguard_redis_evicted_keys_total", "Keys dropped because memory was full. Must stay 0."),
			number("evicted_keys")),
	}
}

// loadFields are clients, commands and CPU.
func loadFields() []field {
	cpu := desc("llmguard_redis_cpu_seconds_total",
		"CPU time, by mode: system, user, and of processes that save data (system_children, user_children).",
		"mode")
	return []field{
		gauge(desc("llmguard_redis_connected_clients", "Connections of clients."), number("connected_clients")),
		gauge(desc("llmguard_redis_blocked_clients", "Connections that wait in a blocking command."),
			number("blocked_clients")),
		gauge(desc("llmguard_redis_max_clients", "The server's maxclients."), number("maxclients")),
		gauge(desc("llmguard_redis_operations_per_second", "Commands per second, as the server measures them."),
			number("instantaneous_ops_per_sec")),
		counter(desc("llmguard_redis_commands_total", "Commands processed."), number("total_commands_processed")),
		counter(cpu, number("used_cpu_sys"), "system"),
		counter(cpu, number("used_cpu_user"), "user"),
		counter(cpu, number("used_cpu_sys_children"), "system_children"),
		counter(cpu, number("used_cpu_user_children"), "user_children"),
		gauge(desc("llmguard_redis_slowlog_entries", "Entries of the slow log; slowlog-max-len bounds them."),
			number("slowlog")),
	}
}

// safetyFields are replication and persistence.
func safetyFields() []field {
	aof := func(name string) func(facts) (float64, bool) {
		return func(f facts) (float64, bool) { return f.aof(f.ok, name) }
	}
	return []field{
		gauge(desc("llmguard_redis_primary", "1 for a primary, 0 for a replica."), facts.primary),
		gauge(desc("llmguard_redis_connected_replicas", "Replicas connected to the server."), number("connected_slaves")),
		gauge(desc("llmguard_redis_replica_lag_bytes", "How far the slowest replica is behind."),
			func(f facts) (float64, bool) { n, _, ok := f.replicaLag(); return n, ok }),
		gauge(desc("llmguard_redis_replica_lag_seconds", "Time since the slowest replica's last acknowledgment."),
			func(f facts) (float64, bool) { _, n, ok := f.replicaLag(); return n, ok }),
		gauge(desc("llmguard_redis_aof_enabled", "1 with an append-only file."), number("aof_enabled")),
		gauge(desc("llmguard_redis_aof_write_ok", "1 if the last write of the append-only file succeeded."),
			aof("aof_last_write_status")),
		gauge(desc("llmguard_redis_aof_rewrite_ok", "1 if the last rewrite of the append-only file succeeded."),
			aof("aof_last_bgrewrite_status")),
		gauge(desc("llmguard_redis_aof_size_bytes", "Size of the append-only file."),
			func(f facts) (float64, bool) { return f.aof(f.number, "aof_current_size") }),
		gauge(desc("llmguard_redis_rdb_save_ok", "1 if the last snapshot was saved."),
			func(f facts) (float64, bool) { return f.ok("rdb_last_bgsave_status") }),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.up
	ch <- c.ping
	for _, f := range c.fields {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for node, r := range c.reports() {
		up := 0.0
		if r.up {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, up, node)
		if r.ping > 0 {
			ch <- prometheus.MustNewConstMetric(c.ping, prometheus.GaugeValue, r.ping.Seconds(), node)
		}
		for _, f := range c.fields {
			if n, ok := f.value(r.info); ok {
				ch <- prometheus.MustNewConstMetric(f.desc, f.kind, n, append([]string{node}, f.more...)...)
			}
		}
	}
}

// reports returns a reading that is at most reuse old.
func (c *collector) reports() map[string]report {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() == nil && (c.last == nil || time.Since(c.read) >= reuse) {
		known := slices.Collect(maps.Keys(c.last))
		c.last = reports(c.ctx, c.rdb, known)
		c.read = time.Now()
	}
	return c.last
}
