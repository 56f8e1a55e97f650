package grafana

// ofOrg selects the chosen orgs.
const ofOrg = `{job=~"$job", instance=~"$instance", org=~"$org"}`

// Org shows the limits and the spending of one org, or of several.
func Org() Dashboard {
	var b builder
	b.row("Now")
	b.stat("Spent in the last hour", "Charges of the chosen orgs.", "currencyUSD",
		`sum(increase(llmguard_guard_org_cost_usd_total`+ofOrg+`[1h]))`)
	b.stat("Spent in the last day", "Charges of the chosen orgs.", "currencyUSD",
		`sum(increase(llmguard_guard_org_cost_usd_total`+ofOrg+`[1d]))`)
	b.stat("Fullest limit", "The highest usage of any enforced limit of the selected orgs.", "percentunit",
		`max(llmguard_budget_org_limit_used`+enforced+` / (llmguard_budget_org_limit_amount`+enforced+` > 0))`, 0.8, 0.95)
	b.stat("Calls over a limit", "Share of the calls of the last hour that were over a limit.", "percentunit",
		`sum(increase(llmguard_guard_org_admissions_total{outcome!="admitted", job=~"$job", instance=~"$instance", org=~"$org"}[1h]))
  / (sum(increase(llmguard_guard_org_admissions_total`+ofOrg+`[1h])) > 0) or vector(0)`, 0.1, 0.5)

	b.row("Limits of the org")
	b.graph("Usage of each limit", "Charges and open holds, as a share of the limit. At 100% calls wait. "+
		"Shadow limits only count.", "percentunit", false,
		query{
			`max by (org, limit, metric, mode) (llmguard_budget_org_limit_used` + ofOrg + `)
  / (max by (org, limit, metric, mode) (llmguard_budget_org_limit_amount` + ofOrg + `) > 0)`,
			"{{org}} {{limit}} ({{mode}})",
		})
	b.graph("Held", "The share of each limit that open calls reserve and may give back.", "percentunit", false,
		query{`max by (org, limit, metric) (llmguard_budget_org_limit_held` + ofOrg + `)
  / (max by (org, limit, metric) (llmguard_budget_org_limit_amount` + ofOrg + `) > 0)`, "{{org}} {{limit}}"})
	b.graph("Cost limits", "Usage of cost limits, in USD.", "currencyUSD", false,
		query{`max by (org, limit) (llmguard_budget_org_limit_used{metric="cost", job=~"$job", instance=~"$instance", org=~"$org"})`, "{{org}} {{limit}}"})

	b.graph("Worst case per hour",
		"The most an org can spend in an hour under its cost limits and the spend caps. Unbounded orgs are not shown.",
		"currencyUSD", false,
		query{`max by (org) (llmguard_guard_org_worst_hour_usd` + ofOrg + `) < +Inf`, "{{org}}"})

	b.row("Spending and calls")
	b.graph("Spending", "Charges, in USD per hour.", "currencyUSD", true,
		query{`sum by (org) (rate(llmguard_guard_org_cost_usd_total` + ofOrg + `[$__rate_interval])) * 3600`, "{{org}}"})
	b.graph("Calls by outcome", "Requested holds. Refused: over a limit, so the call waits or gets 429. Never: larger "+
		"than the whole limit.", "reqps", true,
		query{
			`sum by (org, outcome) (rate(llmguard_guard_org_admissions_total` + ofOrg + `[$__rate_interval]))`,
			"{{org}} {{outcome}}",
		})
	b.graph("Refused calls", "By cause: a limit, spend cap, brake, stop, run, queue or provider.", "reqps", true,
		query{
			`sum by (org, cause) (rate(llmguard_guard_refused_calls_total` + ofOrg + `[$__rate_interval]))`,
			"{{org}} {{cause}}",
		})
	return dashboard("llmguard-org", "llmguard / org",
		"Spending of an org and usage of its limits. For users, see the console or `llmguard usage`: metrics have no "+
			"label for them.",
		b.panels, orgVariable())
}

const enforced = `{mode="enforce", metric!="concurrency", job=~"$job", instance=~"$instance", org=~"$org"}`

// Queue shows waiting jobs, and what delays them.
func Queue() Dashboard {
	var b builder
	b.row("Now")
	b.stat("Waiting", "Jobs in all pools and classes.", "short",
		`sum(max by (pool, class) (llmguard_queue_waiting_jobs`+from+`))`)
	b.stat("Oldest", "Age of the oldest waiting job, without batches.", "s",
		`max(llmguard_queue_oldest_seconds{class!="batch", job=~"$job", instance=~"$instance"})`, 300, 900)
	b.stat("Running", "Live calls and jobs in progress.", "short",
		`sum(max by (pool, kind) (llmguard_queue_running_calls`+from+`))`)
	b.stat("Dead letters", "Failed jobs that can be replayed.", "short",
		`sum(max by (pool) (llmguard_queue_dead_letters`+from+`))`, 1, 100)
	b.stat("Pools paused", "Pools of which an operator pauses the queue.", "short",
		`count(max by (pool) (llmguard_queue_paused`+from+`) > 0) or vector(0)`, 1, 2)
	b.stat("Pools blocked", "Pools that the provider blocks.", "short",
		`count(max by (pool) (llmguard_quota_blocked_seconds`+from+`) > 0) or vector(0)`, 1, 2)

	b.row("Backlog")
	b.graph("Waiting jobs", "By pool and class.", "short", true,
		query{`max by (pool, class) (llmguard_queue_waiting_jobs` + from + `)`, "{{pool}} {{class}}"})
	b.graph("Age of the oldest job", "By pool and class.", "s", false,
		query{`max by (pool, class) (llmguard_queue_oldest_seconds` + from + `)`, "{{pool}} {{class}}"})
	b.graph("Time in the queue, p50 and p95", "From submission to the start of an attempt.", "s", false,
		query{`histogram_quantile(0.5, sum by (le, pool, class) (rate(llmguard_queue_wait_seconds_bucket` + from +
			`[$__rate_interval])))`, "{{pool}} {{class}} p50"},
		query{`histogram_quantile(0.95, sum by (le, pool, class) (rate(llmguard_queue_wait_seconds_bucket` + from +
			`[$__rate_interval])))`, "{{pool}} {{class}} p95"})
	b.graph("Waiting tokens", "Estimated tokens of waiting jobs, by pool.", "short", true,
		query{`sum by (pool) (max by (pool, class) (llmguard_queue_waiting_tokens` + from + `))`, "{{pool}}"})
	b.graph("Parked subjects", "Orgs, flows and lanes that a limit pauses.", "short", false,
		query{`max by (pool) (llmguard_queue_parked_subjects` + from + `)`, "{{pool}}"})
	b.graph("Open bytes", "Bodies of unfinished jobs; max_bytes limits them.", "bytes", false,
		query{`max by (pool) (llmguard_queue_open_bytes` + from + `)`, "{{pool}}"})

	b.row("The provider's quota")
	b.graph("Quota used", "Requests and tokens of the last minute, as a share of the quota.", "percentunit",
		false,
		query{`max by (pool, limit) (llmguard_quota_used` + from + `) / (max by (pool, limit) (llmguard_quota_limit` + from +
			`) > 0)`, "{{pool}} {{limit}}"})
	b.graph("Pace", "Fraction of the quota used for pacing. Below 1 after the provider refused calls.", "percentunit",
		false,
		query{`min by (pool) (llmguard_quota_pace_ratio` + from + `)`, "{{pool}}"})
	b.graph("Provider refusals", "Responses with 429 or 503.", "reqps", false,
		query{
			`sum by (pool, status) (rate(llmguard_quota_refusals_total` + from + `[$__rate_interval])) or vector(0)`,
			"{{pool}} {{status}}",
		})

	b.row("Jobs")
	b.graph("Jobs submitted", "By outcome.", "reqps", true,
		query{
			`sum by (pool, outcome) (rate(llmguard_queue_puts_total` + from + `[$__rate_interval]))`,
			"{{pool}} {{outcome}}",
		})
	b.graph("Jobs ended", "By final state.", "reqps", true,
		query{
			`sum by (pool, state) (rate(llmguard_queue_jobs_ended_total` + from + `[$__rate_interval]))`,
			"{{pool}} {{state}}",
		})
	b.graph("Jobs of dead workers", "Jobs returned to the queue because their worker stopped.", "cps", false,
		query{
			`sum by (pool) (rate(llmguard_queue_claims_reaped_total` + from + `[$__rate_interval])) or vector(0)`,
			"{{pool}}",
		})
	return dashboard("llmguard-queue", "llmguard / queue and pools",
		"Waiting jobs, how long they wait, and whether limits, quota or workers delay them.", b.panels)
}

// Health shows the store and the processes.
func Health() Dashboard {
	var b builder
	b.row("Now")
	b.stat("Processes", "Processes that Prometheus can scrape.", "short", `sum(up`+from+`)`)
	b.stat("Redis scripts, p99", "Including the network.", "s",
		`histogram_quantile(0.99, sum by (le) (rate(llmguard_budget_script_seconds_bucket`+from+`[5m])))`, 0.05, 0.2)
	b.stat("Waiting in journals", "Charges not yet written to Redis.", "short",
		`sum(llmguard_budget_journal_records`+from+`)`, 1, 100)
	b.stat("Orgs without Redis",
		"Orgs for which a process cannot reach Redis, whether their calls are refused or admitted.", "short",
		`max(sum without (mode) (llmguard_guard_store_away_orgs`+from+`))`, 1, 1)
	b.stat("Oldest price", "Age of the oldest price check.", "s", `max(llmguard_pricing_age_seconds`+from+`)`,
		60*86400, 90*86400)

	b.row("Store")
	b.graph("Scripts, p99", "By script.", "s", false,
		query{`histogram_quantile(0.99, sum by (le, script) (rate(llmguard_budget_script_seconds_bucket` + from +
			`[$__rate_interval])))`, "{{script}}"})
	b.graph("Scripts", "Per second, by script.", "ops", true,
		query{`sum by (script) (rate(llmguard_budget_script_seconds_count` + from + `[$__rate_interval]))`, "{{script}}"})
	b.graph("Holds by outcome", "Unavailable: Redis did not respond in time.", "ops", true,
		query{`sum by (outcome) (rate(llmguard_budget_holds_total` + from + `[$__rate_interval]))`, "{{outcome}}"})
	b.graph("Journal", "Charges that wait on disk, by process.", "short", false,
		query{`max by (instance) (llmguard_budget_journal_records` + from + `)`, "{{instance}}"})
	b.graph("Expired, lost and late", "Holds whose process died, and charges that arrived later.", "cps", false,
		query{`sum(rate(llmguard_budget_expired_holds_total` + from + `[$__rate_interval]))`, "expired"},
		query{`sum(rate(llmguard_budget_lost_holds_total` + from + `[$__rate_interval]))`, "lost"},
		query{`sum(rate(llmguard_budget_late_settles_total` + from + `[$__rate_interval]))`, "late settles"})
	b.graph("Calls without Redis", "By on_store_failure mode and outcome.", "reqps", false,
		query{
			`sum by (mode, outcome) (rate(llmguard_guard_without_store_total` + from + `[$__rate_interval])) or vector(0)`,
			"{{mode}} {{outcome}}",
		})

	redisPanels(&b)

	b.row("Proxy")
	b.graph("Requests by status", "499: the caller disconnected.", "reqps", true,
		query{`sum by (status) (rate(llmguard_proxy_requests_total` + from + `[$__rate_interval]))`, "{{status}}"})
	b.graph("Requests by route", "Unknown paths count as one route.", "reqps", true,
		query{`sum by (route) (rate(llmguard_proxy_requests_total` + from + `[$__rate_interval]))`, "{{route}}"})
	b.graph("Waiting callers", "Connections that wait in the queue, by process.", "short", false,
		query{`max by (instance) (llmguard_proxy_waiting_callers` + from + `)`, "{{instance}}"})

	b.row("Processes")
	b.graph("CPU", "CPU cores in use.", "short", false,
		query{`sum by (instance) (rate(process_cpu_seconds_total` + from + `[$__rate_interval]))`, "{{instance}}"})
	b.graph("Memory", "Resident memory.", "bytes", false,
		query{`sum by (instance) (process_resident_memory_bytes` + from + `)`, "{{instance}}"})
	b.graph("Goroutines", "Each waiting caller uses a few.", "short", false,
		query{`sum by (instance) (go_goroutines` + from + `)`, "{{instance}}"})
	b.graph("Longest garbage collection pause", "In the last 15 minutes.", "s", false,
		query{`max by (instance) (go_gc_duration_seconds{quantile="1", job=~"$job", instance=~"$instance"})`, "{{instance}}"})
	b.graph("Open files", "Open files and connections.", "short", false,
		query{`sum by (instance) (process_open_fds` + from + `)`, "{{instance}}"})
	b.graph("Configuration", "1: the last reload succeeded.", "short", false,
		query{`min by (instance) (llmguard_config_last_reload_successful` + from + `)`, "{{instance}}"})
	return dashboard("llmguard-health", "llmguard / store and proxies",
		"Health of Redis, proxies and workers.", b.panels)
}
