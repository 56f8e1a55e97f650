package grafana

// redisPanels show what Redis reports about itself. Every process reports the same, so they read
// it with max; on a cluster there is a line for each primary.
func redisPanels(b *builder) {
	node := func(metric string) string { return "max by (node) (llmguard_redis_" + metric + from + ")" }
	rate := func(metric string) string {
		return "max by (node) (rate(llmguard_redis_" + metric + from + "[$__rate_interval]))"
	}
	b.row("Redis")
	b.graph("Redis reachable", "Processes that reach the server, as a share of all.", "percentunit", false,
		query{"avg by (node) (llmguard_redis_up" + from + ")", "{{node}}"})
	b.graph("Redis round trip", "One PING, slowest process, with the network.", "s", false,
		query{node("ping_seconds"), "{{node}}"})
	b.graph("Redis memory", "In use, highest since the start, and maxmemory.", "bytes", false,
		query{node("memory_used_bytes"), "{{node}}"},
		query{node("memory_peak_bytes"), "{{node}} peak"},
		query{node("memory_max_bytes") + " > 0", "{{node}} maxmemory"})
	b.graph("Redis memory fragmentation", "Resident memory divided by memory in use. High values are normal while little "+
		"memory is in use.", "short", false,
		query{node("memory_fragmentation_ratio"), "{{node}}"})
	b.graph("Redis keys", "All keys, and those with a lifetime.", "short", false,
		query{node("keys"), "{{node}}"}, query{node("expiring_keys"), "{{node}} expiring"})
	b.graph("Redis evictions", "Keys dropped because memory was full. Must stay at zero.", "cps", false,
		query{rate("evicted_keys_total"), "{{node}}"})
	b.graph("Redis commands", "Per second.", "ops", false, query{rate("commands_total"), "{{node}}"})
	b.graph("Redis CPU", "CPU cores in use. Commands and scripts share one core.", "short", false,
		query{
			`max by (node, mode) (rate(llmguard_redis_cpu_seconds_total` + from + `[$__rate_interval]))`,
			"{{node}} {{mode}}",
		})
	b.graph("Redis clients", "Connections, and those in a blocking command.", "short", false,
		query{node("connected_clients"), "{{node}}"}, query{node("blocked_clients"), "{{node}} blocked"})
	b.graph("Redis replicas", "Connected replicas.", "short", false, query{node("connected_replicas"), "{{node}}"})
	b.graph("Redis replica lag", "Bytes that the slowest replica is behind.", "bytes", false,
		query{node("replica_lag_bytes"), "{{node}}"})
	b.graph("Redis append-only file", "Size.", "bytes", false, query{node("aof_size_bytes"), "{{node}}"})
}
