package grafana

// All returns every dashboard by the name of its file.
func All() map[string]Dashboard {
	return map[string]Dashboard{
		"overview.json": Overview(), "org.json": Org(), "queue.json": Queue(),
		"health.json": Health(),
	}
}

// from is the selector every query carries.
const from = `{job=~"$job", instance=~"$instance"}`

// Overview is the dashboard to open first: what is spent, what is refused,
// what waits, and whether llmguard itself is well.
func Overview() Dashboard {
	b := &builder{}
	headline(b)
	money(b)
	limits(b)
	traffic(b)
	waiting(b)
	health(b)
	return dashboard("llmguard-overview", "llmguard / overview",
		"Spend, limits, traffic, queue and the health of llmguard itself.", b.panels)
}

// dashboard puts panels into what all dashboards share, with more variables
// than those all have.
func dashboard(uid, title, about string, panels []Panel, more ...Variable) Dashboard {
	v := variables()
	v.List = append(v.List, more...)
	return Dashboard{
		UID: uid, Title: title, Description: about,
		Tags: []string{tag}, GraphTooltip: 1, Refresh: "30s", SchemaVersion: 39,
		Time: TimeRange{From: "now-6h", To: "now"}, Timezone: "browser",
		Templating: v, Panels: panels,
		Links:       []Link{{Type: "dashboards", Title: "llmguard", Tags: []string{tag}, IncludeVars: true, KeepTime: true}},
		Annotations: Annotations{List: []Annotation{reloads}},
	}
}

// tag is that of all dashboards, by which they find each other.
const tag = "llmguard"

// reloads marks when processes took the configuration that is in force.
var reloads = Annotation{
	Name: "Configuration reloads", Datasource: source, Enable: true, IconColor: "blue",
	Expr:            `llmguard_config_last_reload_success_timestamp_seconds` + from + ` * 1000`,
	UseValueForTime: true, TitleFormat: "configuration in force", TextFormat: "{{instance}}",
}

func headline(b *builder) {
	b.stat("Spent", "Cost charged in the time shown, estimates included. The ledger is exact; this is a graph of it.",
		"currencyUSD",
		`sum(increase(llmguard_guard_cost_usd_total`+from+`[$__range]))`)
	b.stat("Spend per hour", "Cost charged now, carried on for an hour.", "currencyUSD",
		`sum(rate(llmguard_guard_cost_usd_total`+from+`[$__rate_interval])) * 3600`)
	b.stat("Requests per second", "Answered requests of all routes.", "reqps",
		`sum(rate(llmguard_proxy_requests_total`+from+`[$__rate_interval]))`)
	b.stat("Server errors", "Share of answers with status 500 and above, the provider's included.", "percentunit",
		`(sum(rate(llmguard_proxy_requests_total{job=~"$job", instance=~"$instance", status=~"5.."}[$__rate_interval])) or vector(0)) / sum(rate(llmguard_proxy_requests_total`+from+`[$__rate_interval]))`, 0.01, 0.05)
	b.stat("Jobs waiting", "Jobs in the queues of all pools.", "short",
		`sum(max by (pool, class) (llmguard_queue_waiting_jobs`+from+`))`)
	b.stat("Estimated share", "Part of the cost that is an estimate, because no usage came. Every such call is marked "+
		"in the ledger.", "percentunit",
		`(sum(rate(llmguard_guard_cost_usd_total{job=~"$job", instance=~"$instance", kind="estimated"}[$__rate_interval])) or vector(0)) / sum(rate(llmguard_guard_cost_usd_total`+from+`[$__rate_interval]))`, 0.02, 0.1)
}

func money(b *builder) {
	b.row("Money")
	b.graph("Spend per hour by model", "Cost charged, by priced model.", "currencyUSD", true,
		query{`sum by (model) (rate(llmguard_guard_cost_usd_total` + from + `[$__rate_interval])) * 3600`, "{{model}}"})
	b.graph("Spend per hour by org", "Cost charged, by org. Beyond 500 orgs, others are counted as _other.", "currencyUSD",
		true,
		query{`sum by (org) (rate(llmguard_guard_org_cost_usd_total` + from + `[$__rate_interval])) * 3600`, "{{org}}"})
	b.graph("Tokens by class", "Tokens billed. cached_input is part of input, reasoning is part of output.", "short",
		false,
		query{`sum by (class) (rate(llmguard_guard_tokens_total` + from + `[$__rate_interval]))`, "{{class}}"})
	b.graph("Estimates and overruns",
		"Cost that is not exact, cost above its hold, and cost above the request's price, in USD per hour. All should be "+
			"near nothing.", "currencyUSD", false,
		query{`sum(rate(llmguard_budget_estimated_usd_total` + from + `[$__rate_interval])) * 3600`, "estimated"},
		query{`sum(rate(llmguard_budget_overrun_usd_total` + from + `[$__rate_interval])) * 3600`, "overrun"},
		query{`sum(rate(llmguard_guard_underpriced_usd_total` + from + `[$__rate_interval])) * 3600`, "underpriced"})
}

func limits(b *builder) {
	b.row("Limits")
	b.graph("Calls that did not fit, by limit",
		"Refused or sent to the queue by a limit. Limits in mode shadow only counted them.", "reqps", false,
		query{
			`sum by (limit, mode) (rate(llmguard_budget_refusals_total` + from + `[$__rate_interval]))`,
			"{{limit}} ({{mode}})",
		})
	b.graph("Spend caps used", "Share of each spend cap that is used, of a provider or, without one, of the "+
		"deployment. At 100 % calls of all orgs wait.", "percentunit", false,
		query{`max by (provider, limit, metric) (llmguard_budget_cap_used` + from +
			`) / max by (provider, limit, metric) (llmguard_budget_cap_amount` + from + `)`, "{{provider}} {{limit}}"})
	b.graph("Holds by outcome", "What became of holds asked for. Unavailable: Redis did not answer in time, and the "+
		"call was refused.", "reqps", true,
		query{`sum by (outcome) (rate(llmguard_budget_holds_total` + from + `[$__rate_interval]))`, "{{outcome}}"})
	b.graph("Failed authentication", "Requests with an unknown, expired or disabled key.", "reqps", false,
		query{`sum(rate(llmguard_proxy_auth_failures_total` + from + `[$__rate_interval]))`, "failed"})
}

func traffic(b *builder) {
	b.row("Traffic")
	b.graph("Answers by status", "Answered requests, by HTTP status. 499: the caller left.", "reqps", true,
		query{`sum by (status) (rate(llmguard_proxy_requests_total` + from + `[$__rate_interval]))`, "{{status}}"})
	b.graph("Time to answer", "From the request's head to the last byte, waiting in the queue included.", "s", false,
		query{`histogram_quantile(0.5, sum by (le) (rate(llmguard_proxy_request_seconds_bucket` + from +
			`[$__rate_interval])))`, "median"},
		query{`histogram_quantile(0.95, sum by (le) (rate(llmguard_proxy_request_seconds_bucket` + from +
			`[$__rate_interval])))`, "p95"},
		query{`histogram_quantile(0.99, sum by (le) (rate(llmguard_proxy_request_seconds_bucket` + from +
			`[$__rate_interval])))`, "p99"})
	b.graph("Provider's first byte, p95", "From sending a request upstream to the provider's response header.", "s", false,
		query{`histogram_quantile(0.95, sum by (le, pool) (rate(llmguard_guard_upstream_first_byte_seconds_bucket` + from +
			`[$__rate_interval])))`, "{{pool}}"})
	b.graph("Calls by outcome", "Calls that were admitted, by how they ended.", "reqps", true,
		query{`sum by (outcome) (rate(llmguard_guard_calls_total` + from + `[$__rate_interval]))`, "{{outcome}}"})
	b.graph("Calls by pool", "Calls that were admitted, by the provider's quota group.", "reqps", true,
		query{`sum by (pool) (rate(llmguard_guard_calls_total` + from + `[$__rate_interval]))`, "{{pool}}"})
	b.graph("Quota granted to live calls",
		"Asks of live calls for provider quota. What is not granted waits in the queue.", "reqps", true,
		query{
			`sum by (pool, outcome) (rate(llmguard_quota_grants_total` + from + `[$__rate_interval]))`,
			"{{pool}} {{outcome}}",
		})
}

// waiting reads depths with max, because every process reports the same ones.
func waiting(b *builder) {
	b.row("Queue")
	b.graph("Jobs waiting", "By pool and class.", "short", true,
		query{`max by (pool, class) (llmguard_queue_waiting_jobs` + from + `)`, "{{pool}} {{class}}"})
	b.graph("Time in the queue, p95", "From put to the start of an attempt.", "s", false,
		query{`histogram_quantile(0.95, sum by (le, pool, class) (rate(llmguard_queue_wait_seconds_bucket` + from +
			`[$__rate_interval])))`, "{{pool}} {{class}}"})
	b.graph("Provider quota used", "Requests (rpm) and tokens (tpm) in the last sliding minute.", "short", false,
		query{`max by (pool, limit) (llmguard_quota_used` + from + `)`, "{{pool}} {{limit}}"})
	b.graph("Jobs ended", "By terminal state.", "reqps", true,
		query{`sum by (state) (rate(llmguard_queue_jobs_ended_total` + from + `[$__rate_interval]))`, "{{state}}"})
	b.graph("Webhooks", "Attempts to deliver by outcome, and deliveries that were given up.", "reqps", false,
		query{
			`sum by (outcome) (rate(llmguard_webhook_attempts_total` + from + `[$__rate_interval])) or vector(0)`,
			"{{outcome}}",
		},
		query{
			`sum by (reason) (rate(llmguard_webhook_dead_total` + from + `[$__rate_interval])) or vector(0)`,
			"given up: {{reason}}",
		})
	b.graph("Callers waiting", "Connected callers whose call waits in the queue or runs from it.", "short", true,
		query{`sum by (instance) (llmguard_proxy_waiting_callers` + from + `)`, "{{instance}}"})
	b.graph("Pools blocked by the provider", "Rest of the time for which a provider's 429 or 503 keeps a pool closed.",
		"s", false,
		query{`max by (pool) (llmguard_quota_blocked_seconds` + from + `)`, "{{pool}}"})
}

func health(b *builder) {
	b.row("llmguard itself")
	b.graph("Redis scripts, p99", "Time of one budget script with the way to Redis and back.", "s", false,
		query{`histogram_quantile(0.99, sum by (le, script) (rate(llmguard_budget_script_seconds_bucket` + from +
			`[$__rate_interval])))`, "{{script}}"})
	b.graph("What should not happen", "Expired and lost holds, failed settlements, returned claims, faulty usage.", "cps",
		false,
		query{`sum(rate(llmguard_budget_expired_holds_total` + from + `[$__rate_interval]))`, "expired holds"},
		query{`sum(rate(llmguard_budget_lost_holds_total` + from + `[$__rate_interval]))`, "lost holds"},
		query{`sum(rate(llmguard_guard_settle_errors_total` + from + `[$__rate_interval]))`, "failed settlements"},
		query{`sum(llmguard_budget_journal_records` + from + `)`, "waiting in journals"},
		query{
			`sum(rate(llmguard_guard_without_store_total` + from + `[$__rate_interval])) or vector(0)`,
			"calls without Redis",
		},
		query{
			`sum(rate(llmguard_queue_claims_reaped_total` + from + `[$__rate_interval])) or vector(0)`,
			"claims of dead workers",
		},
		query{`sum(rate(llmguard_guard_usage_faults_total` + from + `[$__rate_interval]))`, "faulty usage"})
	b.graph("Processes", "Processes that answer Prometheus.", "short", false,
		query{`sum by (job) (up` + from + `)`, "{{job}}"})
	b.graph("CPU", "Cores in use, by process.", "short", false,
		query{`sum by (instance) (rate(process_cpu_seconds_total` + from + `[$__rate_interval]))`, "{{instance}}"})
	b.graph("Memory", "Resident memory, by process.", "bytes", false,
		query{`sum by (instance) (process_resident_memory_bytes` + from + `)`, "{{instance}}"})
	b.graph("Open files", "Connections included. A waiting stream takes two.", "short", false,
		query{`sum by (instance) (process_open_fds` + from + `)`, "{{instance}}"})
}
