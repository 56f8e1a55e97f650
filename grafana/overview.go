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

// Overview is the dashboard to open first: spending, refusals, waiting calls and the
// health of llmguard.
func Overview() Dashboard {
	b := &builder{}
	headline(b)
	money(b)
	limits(b)
	traffic(b)
	waiting(b)
	health(b)
	return dashboard("llmguard-overview", "llmguard / overview",
		"Spending, limits, traffic, queue and the health of llmguard.", b.panels)
}

// dashboard adds what all dashboards share to panels. More variables follow the shared ones.
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

// tag is on all dashboards, which link to each other by it.
const tag = "llmguard"

// reloads marks when processes loaded the configuration in use.
var reloads = Annotation{
	Name: "Configuration reloads", Datasource: source, Enable: true, IconColor: "blue",
	Expr:            `llmguard_config_last_reload_success_timestamp_seconds` + from + ` * 1000`,
	UseValueForTime: true, TitleFormat: "configuration in force", TextFormat: "{{instance}}",
}

func headline(b *builder) {
	b.stat("Spent", "Cost charged in the selected time range, including estimates. For exact amounts use the ledger.",
		"currencyUSD",
		`sum(increase(llmguard_guard_cost_usd_total`+from+`[$__range]))`)
	b.stat("Spend per hour", "Current rate of charges, in USD per hour.", "currencyUSD",
		`sum(rate(llmguard_guard_cost_usd_total`+from+`[$__rate_interval])) * 3600`)
	b.stat("Requests per second", "Completed requests on all routes.", "reqps",
		`sum(rate(llmguard_proxy_requests_total`+from+`[$__rate_interval]))`)
	b.stat("Server errors", "Share of responses with a 5xx status, from llmguard or the provider.", "percentunit",
		`(sum(rate(llmguard_proxy_requests_total{job=~"$job", instance=~"$instance", status=~"5.."}[$__rate_interval])) or vector(0)) / sum(rate(llmguard_proxy_requests_total`+from+`[$__rate_interval]))`, 0.01, 0.05)
	b.stat("Jobs waiting", "Waiting jobs in all pools.", "short",
		`sum(max by (pool, class) (llmguard_queue_waiting_jobs`+from+`))`)
	b.stat("Estimated share", "Share of the cost that is estimated, because the provider sent no usage. The ledger marks "+
		"each such call.", "percentunit",
		`(sum(rate(llmguard_guard_cost_usd_total{job=~"$job", instance=~"$instance", kind="estimated"}[$__rate_interval])) or vector(0)) / sum(rate(llmguard_guard_cost_usd_total`+from+`[$__rate_interval]))`, 0.02, 0.1)
}

func money(b *builder) {
	b.row("Money")
	b.graph("Spend per hour by model", "Charges by model.", "currencyUSD", true,
		query{`sum by (model) (rate(llmguard_guard_cost_usd_total` + from + `[$__rate_interval])) * 3600`, "{{model}}"})
	b.graph("Spend per hour by org", "Charges by org. Beyond 500 orgs, the rest is _other.", "currencyUSD",
		true,
		query{`sum by (org) (rate(llmguard_guard_org_cost_usd_total` + from + `[$__rate_interval])) * 3600`, "{{org}}"})
	b.graph("Tokens by class", "Billed tokens. cached_input is part of input, reasoning is part of output.", "short",
		false,
		query{`sum by (class) (rate(llmguard_guard_tokens_total` + from + `[$__rate_interval]))`, "{{class}}"})
	b.graph("Estimates and overruns",
		"Estimated cost, cost above the hold, and cost above the price of the request, in USD per hour. All should be "+
			"near zero.", "currencyUSD", false,
		query{`sum(rate(llmguard_budget_estimated_usd_total` + from + `[$__rate_interval])) * 3600`, "estimated"},
		query{`sum(rate(llmguard_budget_overrun_usd_total` + from + `[$__rate_interval])) * 3600`, "overrun"},
		query{`sum(rate(llmguard_guard_underpriced_usd_total` + from + `[$__rate_interval])) * 3600`, "underpriced"})
}

func limits(b *builder) {
	b.row("Limits")
	b.graph("Calls over a limit",
		"Calls that a limit refused or sent to the queue. Shadow limits only count them.", "reqps", false,
		query{
			`sum by (limit, mode) (rate(llmguard_budget_refusals_total` + from + `[$__rate_interval]))`,
			"{{limit}} ({{mode}})",
		})
	b.graph("Refused calls", "By org and cause: a limit, spend cap, brake, stop, queue or the provider.", "reqps", true,
		query{
			`sum by (org, cause) (rate(llmguard_guard_refused_calls_total` + from + `[$__rate_interval]))`,
			"{{org}} {{cause}}",
		})
	b.graph("Spend caps used", "Used share of each spend cap. Without a provider it is the cap of the deployment. "+
		"At 100% calls of all orgs wait.", "percentunit", false,
		query{`max by (provider, limit, metric) (llmguard_budget_cap_used` + from +
			`) / max by (provider, limit, metric) (llmguard_budget_cap_amount` + from + `)`, "{{provider}} {{limit}}"})
	b.graph("Holds by outcome", "Results of hold requests. Unavailable: Redis did not respond in time, and the "+
		"call was refused.", "reqps", true,
		query{`sum by (outcome) (rate(llmguard_budget_holds_total` + from + `[$__rate_interval]))`, "{{outcome}}"})
	b.graph("Brakes that fired", "Brakes that fired, by org and brake, and runs and other subjects that brakes stop "+
		"now. See `llmguard brakes list`.", "short", false,
		query{`max(llmguard_guard_brakes_active` + from + `)`, "stopped now"},
		query{
			`sum by (org, brake) (increase(llmguard_guard_brakes_fired_total` + from + `[$__rate_interval])) or vector(0)`,
			"{{org}} {{brake}}",
		})
	b.graph("Failed authentication", "Requests with an unknown, expired or disabled key.", "reqps", false,
		query{`sum(rate(llmguard_proxy_auth_failures_total` + from + `[$__rate_interval]))`, "failed"})
}

func traffic(b *builder) {
	b.row("Traffic")
	b.graph("Responses by status", "Responses by HTTP status. 499: the caller disconnected.", "reqps", true,
		query{`sum by (status) (rate(llmguard_proxy_requests_total` + from + `[$__rate_interval]))`, "{{status}}"})
	b.graph("Response time", "From the request's header to the last byte, including time in the queue.", "s", false,
		query{`histogram_quantile(0.5, sum by (le) (rate(llmguard_proxy_request_seconds_bucket` + from +
			`[$__rate_interval])))`, "median"},
		query{`histogram_quantile(0.95, sum by (le) (rate(llmguard_proxy_request_seconds_bucket` + from +
			`[$__rate_interval])))`, "p95"},
		query{`histogram_quantile(0.99, sum by (le) (rate(llmguard_proxy_request_seconds_bucket` + from +
			`[$__rate_interval])))`, "p99"})
	b.graph("Time of live calls by part", "llmguard and redis are what llmguard adds. Calls that waited in the queue are "+
		"not counted.", "s", false,
		query{`histogram_quantile(0.5, sum by (le, part) (rate(llmguard_proxy_call_seconds_bucket` + from +
			`[$__rate_interval])))`, "{{part}}, median"},
		query{`histogram_quantile(0.99, sum by (le, part) (rate(llmguard_proxy_call_seconds_bucket` + from +
			`[$__rate_interval])))`, "{{part}}, p99"})
	b.graph("Provider's first byte, p95", "From sending the request to the provider's response header.", "s", false,
		query{`histogram_quantile(0.95, sum by (le, pool) (rate(llmguard_guard_upstream_first_byte_seconds_bucket` + from +
			`[$__rate_interval])))`, "{{pool}}"})
	b.graph("Calls by outcome", "Admitted calls, by outcome.", "reqps", true,
		query{`sum by (outcome) (rate(llmguard_guard_calls_total` + from + `[$__rate_interval]))`, "{{outcome}}"})
	b.graph("Response cache hits", "Share of the requests that use the response cache and are answered from it.",
		"percentunit", false,
		query{`sum(rate(llmguard_cache_requests_total{job=~"$job", instance=~"$instance", outcome="hit"}[$__rate_interval])) ` +
			`/ sum(rate(llmguard_cache_requests_total{job=~"$job", instance=~"$instance", outcome=~"hit|miss"}` +
			`[$__rate_interval]))`, "hits"})
	b.graph("Calls by pool", "Admitted calls, by pool.", "reqps", true,
		query{`sum by (pool) (rate(llmguard_guard_calls_total` + from + `[$__rate_interval]))`, "{{pool}}"})
	b.graph("Quota granted to live calls",
		"Live calls that requested provider quota. Calls without a grant wait in the queue.", "reqps", true,
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
	b.graph("Time in the queue, p95", "From submission to the start of an attempt.", "s", false,
		query{`histogram_quantile(0.95, sum by (le, pool, class) (rate(llmguard_queue_wait_seconds_bucket` + from +
			`[$__rate_interval])))`, "{{pool}} {{class}}"})
	b.graph("Provider quota used", "Requests (rpm) and tokens (tpm, or itpm and otpm) in the last minute.", "short", false,
		query{`max by (pool, limit) (llmguard_quota_used` + from + `)`, "{{pool}} {{limit}}"})
	b.graph("Jobs ended", "By final state.", "reqps", true,
		query{`sum by (state) (rate(llmguard_queue_jobs_ended_total` + from + `[$__rate_interval]))`, "{{state}}"})
	b.graph("Webhooks", "Delivery attempts by outcome, and deliveries given up.", "reqps", false,
		query{
			`sum by (outcome) (rate(llmguard_webhook_attempts_total` + from + `[$__rate_interval])) or vector(0)`,
			"{{outcome}}",
		},
		query{
			`sum by (reason) (rate(llmguard_webhook_dead_total` + from + `[$__rate_interval])) or vector(0)`,
			"given up: {{reason}}",
		})
	b.graph("Callers waiting", "Connected callers whose call is queued, or runs as a queued job.", "short", true,
		query{`sum by (instance) (llmguard_proxy_waiting_callers` + from + `)`, "{{instance}}"})
	b.graph("Pools blocked by the provider", "Remaining time for which a 429 or 503 of the provider blocks the pool.",
		"s", false,
		query{`max by (pool) (llmguard_quota_blocked_seconds` + from + `)`, "{{pool}}"})
}

func health(b *builder) {
	b.row("Health")
	b.graph("Redis scripts, p99", "Duration of one budget script, including the network.", "s", false,
		query{`histogram_quantile(0.99, sum by (le, script) (rate(llmguard_budget_script_seconds_bucket` + from +
			`[$__rate_interval])))`, "{{script}}"})
	b.graph("Problems", "Expired and lost holds, failed settlements, dead workers, faulty usage. Should be zero.", "cps",
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
			"jobs of dead workers",
		},
		query{`sum(rate(llmguard_guard_usage_faults_total` + from + `[$__rate_interval]))`, "faulty usage"})
	b.graph("Processes", "Processes that Prometheus can scrape.", "short", false,
		query{`sum by (job) (up` + from + `)`, "{{job}}"})
	b.graph("CPU", "CPU cores in use, by process.", "short", false,
		query{`sum by (instance) (rate(process_cpu_seconds_total` + from + `[$__rate_interval]))`, "{{instance}}"})
	b.graph("Memory", "Resident memory, by process.", "bytes", false,
		query{`sum by (instance) (process_resident_memory_bytes` + from + `)`, "{{instance}}"})
	b.graph("Open files", "Open files and connections. A waiting stream uses two.", "short", false,
		query{`sum by (instance) (process_open_fds` + from + `)`, "{{instance}}"})
}
