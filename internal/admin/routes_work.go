package admin

import (
	"net/http"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/top"
	"github.com/llmguard/llmguard/internal/webhook"
)

func (s *Server) workRoutes() []Operation {
	return []Operation{
		{
			Name: "listQueue", Method: http.MethodGet, Path: "/queue",
			Summary: "Show the queue: pools, their quota use, waiting jobs by user, and what is paused",
			Query:   []parameter{{name: "pool", text: "Only this pool"}, orgsParameter}, Answer: page[QueuePool]{},
			serve: s.jobs.open(s.queues.listQueue),
			Commands: []Command{{
				Use: "queue", Short: "Show the queue: jobs by pool and user, quota use, what is paused and why",
				Example: "queue\nqueue --pool gpt\nqueue -o json | jq '.[] | select(.oldest_seconds > 60)'",
			}},
		},
		{
			Name: "listDeadJobs", Method: http.MethodGet, Path: "/queue/dead",
			Summary: "List dead letters by pool, newest first",
			Query: []parameter{
				{name: "pool", text: "Only this pool"},
				orgsParameter,
				{name: "limit", text: "Maximum number per pool, 1 to 1000; default: 100", kind: Count, value: "100"},
			}, Answer: jobPage{}, serve: s.jobs.open(s.queues.listDead),
			Commands: []Command{{
				Use: "queue dead", Short: "List dead letters: jobs that failed although their request was valid",
				Example: "queue dead\nqueue dead -o json | jq -r '.[].id' | xargs -r llmguard jobs replay",
				None:    "no dead letters", More: "a pool has more than are shown; use --limit to list more",
			}},
		},
		{
			Name: "pausePool", Method: http.MethodPost, Audit: "pool.pause", Path: "/queue/{pool}/pause",
			Summary: "Pause the queue of a pool: no job is started until it is resumed", Writes: true,
			Body: workOrder{}, Answer: Pause{}, serve: s.jobs.open(s.queues.pausePool),
			Pages: []Page{{
				Title: "Pause a pool", Text: "No job of pool %s starts until you resume it. Running jobs and live calls continue.",
				Danger: true, Done: "Pool {pool} starts no more jobs.",
			}},
			Commands: []Command{{
				Use: "queue pause POOL", Short: "Start no more jobs of a pool until it is resumed; running jobs and live calls continue",
				Example: "queue pause openai\nqueue resume openai", Done: "pool {pool} starts no more jobs",
			}},
		},
		{
			Name: "resumePool", Method: http.MethodPost, Audit: "pool.resume", Path: "/queue/{pool}/resume",
			Summary: "End the pauses of a pool, an operator's and its provider's; the response shows what was ended",
			Writes:  true,
			Body:    workOrder{}, Answer: Pause{}, serve: s.jobs.open(s.queues.resumePool),
			Pages: []Page{{
				Title: "End a pause", Text: "Calls of pool %s continue now. If the provider refuses them again, they pause again.",
				Done: "Pool {pool} continues.",
			}},
			Commands: []Command{{
				Use: "queue resume POOL", Example: "queue\nqueue resume openai",
				Short: "End the pauses of a pool now: an operator's, and its provider's, such as after its account has new credit",
			}},
		},
		{
			Name: "listJobs", Method: http.MethodGet, Path: "/jobs", Summary: "List jobs, newest first",
			Query: []parameter{
				orgsParameter,
				{name: "user", text: "Only this user's"},
				{name: "model", text: "Only those for this model, as named in the request"},
				{
					name: "status", text: "Only jobs in this state: queued, running, succeeded, failed, cancelled or expired",
					choices: jobStates,
				},
				{
					name: "since", text: "Only those submitted at this time or later (RFC 3339)", kind: Since,
					help: "only jobs submitted within this period, such as 90m or 24h",
				},
				{name: "limit", text: "Maximum number, 1 to 1000; default: 50", kind: Count, value: "50"},
			},
			Answer: jobPage{}, serve: s.jobs.listJobs,
			Commands: []Command{{
				Use: "jobs list", Short: "List jobs, newest first", None: "no jobs",
				Example: "jobs list --status failed --since 24h\njobs list --org acme --user alice -o json | jq '.[].id'",
				More:    "showing the newest {n}; use --limit to list more",
			}},
		},
		{
			Name: "getJob", Method: http.MethodGet, Path: "/jobs/{job}",
			Summary: "Show a job of any org, with its place in the queue", Query: []parameter{orgsParameter},
			Answer: JobLine{}, serve: s.jobs.getJob,
			Commands: []Command{{
				Use: "jobs get ID", Short: "Show the status, queue position, attempts and cost of a job",
				Example: "jobs get job_puyzj01m7x3vb350ckcmq65wwmswwsz",
			}},
		},
		{
			Name: "followJob", Method: http.MethodGet, Path: "/jobs/{job}/events",
			Summary: "Stream a job's states as JSON lines until it finishes; if an error occurs, it is the last line",
			Query:   []parameter{orgsParameter}, Lines: true, Answer: JobEvent{}, serve: s.jobs.followJob,
			Commands: []Command{{
				Use: "jobs watch ID", Short: "Follow a job until it ends",
				Long: "Prints the job's states to standard error and, with --config, its response to standard output. The response belongs to the\n" +
					"caller, so the admin API does not return it. The exit code is 1 unless the job succeeds.",
				Example: "jobs watch job_puyzj01m7x3vb350ckcmq65wwmswwsz\n" +
					"jobs watch job_puyzj01m7x3vb350ckcmq65wwmswwsz -c llmguard.yaml > answer.json",
			}},
		},
		{
			Name: "cancelJob", Method: http.MethodPost, Audit: "job.cancel", Path: "/orgs/{org}/jobs/{job}/cancel",
			Summary: "Cancel a job; a running job stops as soon as possible", Writes: true, Body: workOrder{},
			Answer: Job{}, serve: s.jobs.open(s.jobs.cancelJob),
			Pages: []Page{{
				Title: "Cancel a job", Text: "Cancels %s. A running job stops; its cost so far is charged.", Danger: true,
				Done: "Job {id} is {status}.",
			}},
			Commands: []Command{{
				Use: "jobs cancel ID...", Short: "Cancel jobs (running ones when their upstream call stops)",
				Example: "jobs list --status queued --user bob -o json | jq -r '.[].id' | xargs -r llmguard jobs cancel",
				Help:    map[string]string{"org": "the org of the jobs (default: it is found)"}, All: true,
			}},
		},
		{
			Name: "replayJob", Method: http.MethodPost, Audit: "job.replay", Path: "/jobs/{job}/replay",
			Summary: "Submit a dead letter again as a new job", Writes: true, Body: workOrder{}, Answer: Job{},
			Status: 201, serve: s.jobs.open(s.jobs.replayJob),
			Pages: []Page{{
				Title: "Replay a dead letter", Text: "Queues the request of %s again, as a new job with a full set of attempts.",
				Done: "Queued again as {id}.",
			}},
			Commands: []Command{{
				Use: "jobs replay ID...", Short: "Queue dead letters again, each as a new job",
				Example: "queue dead\njobs replay job_puyzj01m7x3vb350ckcmq65wwmswwsz",
			}},
		},
		{
			Name: "listBatches", Method: http.MethodGet, Path: "/batches",
			Summary: "List the batches of all orgs, unfinished ones first, then newest first",
			Query: []parameter{
				{name: "org", text: "Only this org's"},
				{name: "user", text: "Only this user's"},
				{
					name: "status", text: "open: only unfinished batches", help: "only unfinished batches", kind: Switch, flag: "open",
					value: "open",
				},
			}, Answer: batchPage{}, serve: s.batches.listBatches,
			Commands: []Command{{
				Use: "batches list", Short: "List batches, unfinished first, then newest first",
				Example: "batches list\nbatches list --org acme --open -o json",
				None:    "no batches", More: "showing the first {n}; filter with --org or --user to see others",
			}},
		},
		{
			Name: "getBatch", Method: http.MethodGet, Path: "/batches/{batch}", Summary: "Show a batch of any org",
			Answer: BatchLine{}, serve: s.batches.getBatch,
			Commands: []Command{{
				Use: "batches show BATCH", Short: "Show the owner, progress and cost of a batch",
				Example: "batches show batch_5ycmz7yqwdzcprxg5kzvw2xkfe",
			}},
		},
		{
			Name: "cancelBatch", Method: http.MethodPost, Audit: "batch.cancel",
			Path:    "/orgs/{org}/users/{user}/batches/{batch}/cancel",
			Summary: "Cancel a batch: no new lines start, and results so far are kept", Writes: true, Body: workOrder{},
			Answer: Batch{}, serve: s.batches.cancelBatch,
			Pages: []Page{{
				Title: "Cancel a batch", Text: "No new lines of %s will start. Running lines finish; results so far are kept.",
				Danger: true, Done: "Batch {id} is being cancelled.",
			}},
			Commands: []Command{{
				Use: "batches cancel BATCH...", Short: "Cancel batches (running lines finish, results are kept)",
				Example: "batches cancel batch_5ycmz7yqwdzcprxg5kzvw2xkfe --reason 'wrong model'", Hide: []string{"org", "user"},
			}},
		},

		{
			Name: "listWebhooks", Method: http.MethodGet, Path: "/webhooks",
			Summary: "List webhook targets, and which of them are disabled because they answered 410",
			Query:   []parameter{{name: "org", text: "Only this org's"}},
			Answer:  page[webhook.Target]{}, serve: s.webhooks.open(s.webhooks.listWebhooks),
			Commands: []Command{{
				Use: "webhooks targets", Short: "List webhook targets, including those switched off after status 410",
				Example: "webhooks targets", None: "no webhook targets; set webhooks of an org in the configuration",
			}},
		},
		{
			Name: "listDeadWebhooks", Method: http.MethodGet, Path: "/webhooks/dead",
			Summary: "List abandoned deliveries by org, newest first",
			Query: []parameter{
				orgsParameter, {name: "limit", text: "Maximum number per org, 1 to 1000; default: 100", kind: Count, value: "100"},
			},
			Answer: deadPage{},
			serve:  s.webhooks.open(s.webhooks.listDeadWebhooks),
			Commands: []Command{{
				Use: "webhooks dead", Short: "List failed deliveries, newest first",
				Example: "webhooks dead --org acme\nwebhooks dead -o json | jq -r '.[] | select(.reason == \"gone\") | .id'",
				None:    "no dead letters", More: "an org has more than are shown; use --limit to list more",
			}},
		},
		{
			Name: "replayWebhook", Method: http.MethodPost, Audit: "webhook.replay", Path: "/webhooks/dead/{letter}/replay",
			Summary: "Retry abandoned deliveries, with the same webhook-id", Writes: true,
			Query: []parameter{orgsParameter, reasonParameter}, Body: workOrder{}, Answer: webhook.DeadLetter{},
			serve:  s.webhooks.open(s.webhooks.replayWebhook),
			NoPage: "the console does not list deliveries",
			Commands: []Command{{
				Use: "webhooks replay ID...", Short: "Send failed deliveries again with the same webhook-id",
				Example: "webhooks dead\n" +
					"webhooks dead --org acme -o json | jq -r '.[].id' | xargs -r llmguard webhooks replay --org acme",
			}},
		},
		{
			Name: "enableWebhook", Method: http.MethodPost, Audit: "webhook.enable",
			Path:    "/orgs/{org}/webhooks/{target}/enable",
			Summary: "Enable a disabled target again; dead letters are not replayed", Writes: true,
			Body: workOrder{}, Answer: webhook.Target{}, serve: s.webhooks.open(s.webhooks.enableWebhook),
			Pages: []Page{{
				Title: "Re-enable a webhook target",
				Text:  "Sends events to target %s again. Replay missed events with llmguard webhooks replay.",
				Done:  "The webhook target is enabled.",
			}},
			Commands: []Command{{
				Use: "webhooks enable TARGET", Short: "Re-enable a target that was switched off (then send what it missed with " +
					"`llmguard webhooks replay`)",
				Example: "webhooks targets\nwebhooks enable 3f9c1e0a7b24d68f05a1c2e3 --org acme --reason 'endpoint is back'",
			}},
		},
	}
}

func (s *Server) spendingRoutes() []Operation {
	return []Operation{
		{
			Name: "getTop", Method: http.MethodGet, Path: "/top",
			Summary: "Sample current activity: spending of the last minute against limits, pools and their quota, slowest calls",
			Query: []parameter{
				orgsParameter,
				{name: "user", text: "An additional user whose limits to show, as org/user"},
				{name: "by", text: "Group calls of the last minute by one of " + strings.Join(ledger.Names("NAME"), ", ") +
					"; default: the first label, otherwise model"},
				filterParameter,
			}, Answer: top.Snapshot{},
			serve:    s.system.top,
			Commands: []Command{{Use: "top", Own: true}},
		},
		{
			Name: "listCalibration", Method: http.MethodGet, Path: "/calibration",
			Summary: "List learned token ratios of models whose tokenizer is not public", Answer: page[calibration.Row]{},
			serve: s.system.listCalibration,
			Commands: []Command{{
				Use: "prices calibration", Short: "Show token calibration of models without a public tokenizer",
				Long: "Lists, by model, class of text and org, the billed input tokens per estimated token: \"mean\" is the expected value, \"hold\"\n" +
					"is the reserved value, \"seen\" is the mean of the bills alone, and \"prior\" shows mean and hold before any bills. \"base\" is\n" +
					"the number of tokens that the provider adds to every prompt. The proxies exchange these values every 10 seconds.",
				Example: "prices calibration --model 'claude-*'\nprices calibration -o json",
				None:    "no calibration data yet",
				Columns: []string{
					"model:model", "version:answers as", "class:class", "org:org", "observations:n", "mean_permille:mean;permille",
					"hold_permille:hold;permille", "seen_permille:seen;permille", "base_tokens:base", "prior_mean_permille:prior;=prior",
					"since:since;date",
				},
			}},
		},

		{
			Name: "getUsage", Method: http.MethodGet, Path: "/orgs/{org}/usage",
			Summary: "Sum up spending, from the ledger's totals by day or hour, or from its entries for runs, labels and " +
				"filters that these lack",
			Query: []parameter{
				{
					name: "from",
					text: "First day, such as 2026-11-01, or a time (RFC 3339) to sum up by hour; default: today",
				},
				{name: "to", text: "Last day, or a time; default: today"},
				{name: "tz", text: "Time zone of days and hours, such as Europe/Berlin; default: UTC"},
				{
					name: "by",
					text: "Any of " + strings.Join(ledger.Groupings(), ", ") + " and one label:NAME, separated by commas; " +
						"default: user,model",
				},
				filterParameter,
			},
			Answer: Usage{}, serve: s.withLedger(s.usage.getUsage),
			Commands: []Command{{Use: "usage", Own: true}},
		},

		{
			Name: "getSpend", Method: http.MethodGet, Path: "/spend",
			Summary: "Group spending by any dimensions, with its course and the period before", Query: spendParameters,
			Answer: Spend{}, serve: s.usage.getSpend,
			Without: "usage has the same sums",
		},
		{
			Name: "searchCalls", Method: http.MethodGet, Path: "/orgs/{org}/calls",
			Summary: "Search ledger entries, one or more per call, in pages",
			Query: append([]parameter{
				filterParameter,
				{name: "sort", text: "newest or cost (highest first, one page); default: newest"},
				{name: "limit", text: "Maximum number of entries; default: 50"},
				{name: "before", text: "Continue here: next of the page before"},
			}, periodParameters...),
			Answer: CallPage{}, serve: s.withLedger(s.usage.searchCalls),
			Without: "usage entries has the same entries",
		},

		{
			Name: "listRefusals", Method: http.MethodGet, Path: "/refusals",
			Summary: "Count the calls that were refused or delayed, by user, key and cause",
			Query: slices.Concat(refusalFilter, []parameter{
				{name: "by", text: "hour: also by hour for the last 14 days, and by UTC day before that"},
			}, refusalPeriod),
			Answer: page[Refusal]{}, serve: s.usage.listRefusals,
			Commands: []Command{{
				Use: "limits refusals", Short: "Show the users whose calls were refused or delayed, and by what", Hide: []string{"by"},
				Long: "Counts calls by user, key and cause: calls that were refused, and calls that waited and were not refused later. The\n" +
					"cause is a limit, spend cap, brake, stop or run, the queue, memory, or the provider. A call that waits counts once,\n" +
					"for the first cause. Counts are hourly for 14 days, before that daily (UTC). With a filter, only recorded calls\n" +
					"are counted, see `llmguard limits refused-calls`.",
				Example: "limits refusals --from 12h\nlimits refusals --org acme --user alice --from 7d -o json\n" +
					"limits refusals --cause brake",
				None: "no calls refused or delayed since {from} UTC",
			}},
		},
		{
			Name: "listRefusedCalls", Method: http.MethodGet, Path: "/refusals/calls",
			Summary: "List the calls of the last day that were refused or delayed, newest first",
			Query: slices.Concat(refusalFilter, []parameter{
				{name: "limit", text: "Maximum number, 1 to 1000; default: 50"},
			}, refusalPeriod),
			Answer: page[RefusedCall]{}, serve: s.usage.listRefusedCalls,
			Commands: []Command{{
				Use: "limits refused-calls", Short: "List the calls that were refused or delayed in the last day",
				Long: "Lists calls, newest first, with the id that the caller got and the cause. At most 1 MiB for each org and a day is kept,\n" +
					"and at most 300 calls a second of each process, 20 of one key and cause; `llmguard limits refusals`\n" +
					"has exact counts.",
				Columns: []string{
					"at:time;second", "id:call", "org:org", "user:user", "key:key", "model:model", "cause:cause", "status:status",
					"waited:waited", "job:job",
				},
				Example: "limits refused-calls --org acme --user alice\nlimits refused-calls --cause provider --from 1h -o json\n" +
					"limits refused-calls --filter 'run=run_7h2k project=mobile'",
				None: "no calls refused or delayed since {from} UTC",
			}},
		},

		{
			Name: "explain", Method: http.MethodGet, Path: "/why/{id}",
			Summary: "Explain what refuses or delays a call, job, batch, run, key, user or org, or whom a limit, brake or " +
				"stop refuses: the cause, the limits and their usage, who uses most, and the commands that help",
			Query:  []parameter{{name: "org", text: "Only in this org; required if the name means several things"}},
			Answer: Why{}, serve: s.why.serve,
			Commands: []Command{{
				Use: "why ID|NAME", Short: "Explain what refuses or delays a call, job or caller, and how to let it through",
				Long: "Takes any id from an answer: of a call (X-Request-Id), job, response, batch, file, hold or run, or the provider's. It\n" +
					"also takes the name of a user, key, run, limit, brake, org, pool, provider or model, or a cause such as pool:openai;\n" +
					"user:alice names its kind, too. The first line is the cause, the last one a command that lets the call through, or\n" +
					"shows more if nothing stops it. Between them are the limits that apply, their usage,\n" +
					"when they have capacity again, and who uses most. Limits are the current ones, even for a call that has ended.",
				Example: "why alice --org acme\nwhy job_puyzj01m7x3vb350ckcmq65wwmswwsz\nwhy brake:wild-run --org acme\n" +
					"why 01m7x425asv4hapb0hzey6k903 -o json",
			}},
		},

		{
			Name: "listLedger", Method: http.MethodGet, Path: "/orgs/{org}/ledger",
			Summary: "Stream ledger entries as JSON lines; if an error occurs, it is the last line",
			Query: append([]parameter{{name: "order", text: "oldest or newest first; default: oldest"}, filterParameter},
				periodParameters...),
			Lines: true, Answer: ledger.Entry{}, serve: s.withLedger(s.ledger.listLedger),
			Commands: []Command{{Use: "usage entries", Own: true}},
		},
		{
			Name: "listCorrections", Method: http.MethodGet, Path: "/orgs/{org}/corrections",
			Summary: "Stream manual corrections of the org's bill, oldest first", Query: periodParameters,
			Lines: true, Answer: ledger.AuditRecord{}, serve: s.withLedger(s.ledger.listCorrections),
			Commands: []Command{{
				Use: "usage audit", Short: "List manual billing corrections", Example: "usage audit --from 2026-11", Orgs: "ledgers",
				None: "no corrections in the period",
				Columns: []string{
					"at:time;second", "org:org", "user:user", "action:action", "amount_nano:amount;usd", "by:by", "reason:reason",
					"limits:limits;comma", "id:id",
				},
			}},
		},
		{
			Name: "createCorrection", Method: http.MethodPost, Path: "/orgs/{org}/corrections",
			Summary: "Correct a bill by an amount; adds an entry and never changes existing ones", Writes: true,
			Body: correction{}, Answer: Corrected{}, Status: 201, serve: s.ledger.createCorrection,
			NoPage: "it books money: the CLI, with a reason and an id",
			Commands: []Command{{
				Use: "usage adjust", Short: "Correct a bill", Orgs: "one", Must: []string{"reason"},
				AnyOf: []string{"user", "call"},
				Long: "Adds an entry of kind adjust to the ledger and to today's sums, and records it in the audit. Existing entries never\n" +
					"change. With --call, the entry has the call's user, key and model. Repeating the command with the same --id has no effect\n" +
					"for at least 64 days; without --id, every run is a new adjustment.",
				Example: "usage adjust --org acme --user alice --amount '-$1.20' --reason 'provider refund, ticket 81'\n" +
					"usage adjust --org acme --call 01m7x425asv4hapb0hzey6k903 --amount '-$0.40' --limits --reason 'billed twice'",
			}},
		},
		{
			Name: "listUnresolved", Method: http.MethodGet, Path: "/orgs/{org}/unresolved",
			Summary: "List charges that arrived too late to be booked automatically", Answer: page[ledger.Unresolved]{},
			serve: s.known(s.ledger.listUnresolved),
			Commands: []Command{{
				Use: "usage reconcile", Short: "List, book or drop charges that arrived too late to be booked automatically",
				Long: "A charge that arrives more than an hour after its call may already be booked, so it waits here for your decision. \"booked\"\n" +
					"shows what the ledger has for the same call and attempt. If it is booked, drop the charge; otherwise, charge it.",
				Example: "usage reconcile\n" +
					"usage reconcile charge --call 01m7x425asv4hapb0hzey6k903 --reason 'proxy 3 was offline, ticket 90'",
				Orgs: "each", None: "nothing to reconcile",
				Columns: []string{
					"at:arrived;second", "org:org", "user:user", "model:model", "id:call", "attempt:attempt", "cost_nano:cost;usd",
					"corrects:;=remark", "booked:booked;=booked",
				},
			}},
		},
		{
			Name: "resolve", Method: http.MethodPost, Path: "/orgs/{org}/unresolved/{call}",
			Summary: "Book such a charge, or drop it", Writes: true, Body: resolution{}, Answer: Corrected{},
			serve:  s.ledger.resolve,
			NoPage: "as createCorrection",
			Commands: []Command{{
				Use: "usage reconcile charge", Short: "Book a late charge", Fixed: map[string]any{"action": "charge"}, Orgs: "one",
				Example: "usage reconcile charge --call 01m7x425asv4hapb0hzey6k903 --reason 'ticket 90'", Must: []string{"reason"},
			}, {
				Use: "usage reconcile drop", Short: "Drop a late charge without booking it", Fixed: map[string]any{"action": "drop"},
				Example: "usage reconcile drop --call 01m7x425asv4hapb0hzey6k903 --reason 'ticket 90'", Must: []string{"reason"},
				Orgs: "one", Hide: []string{"although_booked", "limits"},
				Done: "dropped {amount_nano_usd} of user {user} of org {org}",
			}},
		},
		{
			Name: "listCaps", Method: http.MethodGet, Path: "/caps",
			Summary: "List the spend caps of providers and of the deployment, with their usage", Answer: page[Cap]{},
			serve: s.system.listCaps,
			Commands: []Command{{
				Use: "usage caps", Short: "Show the usage of spend caps", Example: "usage caps",
				Long: "Shows the current usage of each spend cap, over all orgs. \"held\" is the part of it that is reserved by calls in " +
					"flight.",
				None: "no spend caps configured; set spend_caps in the configuration",
			}},
		},
	}
}
