package admin

import (
	"net/http"
	"strings"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/top"
	"github.com/llmguard/llmguard/internal/webhook"
)

// workRoutes returns the routes for the queue, jobs, batches and webhooks.
func (s *Server) workRoutes() []route {
	return []route{
		{
			name: "listQueue", method: http.MethodGet, path: "/queue",
			summary: "Show the queue: pools, their quota use, waiting jobs by user, and what is paused",
			query:   []parameter{{"pool", "Only this pool"}, orgsParameter}, answer: page[QueuePool]{},
			serve: s.queues.listQueue,
		},
		{
			name: "listDeadJobs", method: http.MethodGet, path: "/queue/dead",
			summary: "List dead letters by pool, newest first",
			query: []parameter{
				{"pool", "Only this pool"},
				orgsParameter,
				{"limit", "Maximum number per pool, 1 to 1000; default: 100"},
			}, answer: jobPage{}, serve: s.queues.listDead,
		},
		{
			name: "pausePool", method: http.MethodPost, path: "/queue/{pool}/pause",
			summary: "Pause the queue of a pool: no job is started until it is resumed", writes: true,
			body: workOrder{}, answer: Pause{}, serve: s.queues.pausePool,
		},
		{
			name: "resumePool", method: http.MethodPost, path: "/queue/{pool}/resume",
			summary: "End the pauses of a pool, an operator's and its provider's; the response shows what was ended",
			writes:  true,
			body:    workOrder{}, answer: Pause{}, serve: s.queues.resumePool,
		},
		{
			name: "listJobs", method: http.MethodGet, path: "/jobs", summary: "List jobs, newest first",
			query: []parameter{
				orgsParameter,
				{"user", "Only those of this user"},
				{"model", "Only those for this model, as named in the request"},
				{"status", "Only jobs in this state: queued, running, succeeded, failed, cancelled or expired"},
				{"since", "Only those submitted at this time or later (RFC 3339)"},
				{"limit", "Maximum number, 1 to 1000; default: 50"},
			},
			answer: jobPage{}, serve: s.jobs.listJobs,
		},
		{
			name: "getJob", method: http.MethodGet, path: "/jobs/{job}",
			summary: "Show a job of any org, with its place in the queue", query: []parameter{orgsParameter},
			answer: JobLine{}, serve: s.jobs.getJob,
		},
		{
			name: "followJob", method: http.MethodGet, path: "/jobs/{job}/events",
			summary: "Stream a job's states as JSON lines until it finishes; if an error occurs, it is the last line",
			query:   []parameter{orgsParameter}, lines: true, answer: JobEvent{}, serve: s.jobs.followJob,
		},
		{
			name: "cancelJob", method: http.MethodPost, path: "/orgs/{org}/jobs/{job}/cancel",
			summary: "Cancel a job; a running job stops as soon as possible", writes: true, body: workOrder{},
			answer: Job{}, serve: s.jobs.cancelJob,
		},
		{
			name: "replayJob", method: http.MethodPost, path: "/jobs/{job}/replay",
			summary: "Submit a dead letter again as a new job", writes: true, body: workOrder{}, answer: Job{},
			status: 201, serve: s.jobs.replayJob,
		},
		{
			name: "listBatches", method: http.MethodGet, path: "/batches",
			summary: "List the batches of all orgs, unfinished ones first, then newest first",
			query: []parameter{
				{"org", "Only those of this org"},
				{"user", "Only those of this user"},
				{"status", "open: only unfinished batches"},
			}, answer: batchPage{}, serve: s.batches.listBatches,
		},
		{
			name: "getBatch", method: http.MethodGet, path: "/batches/{batch}", summary: "Show a batch of any org",
			answer: BatchLine{}, serve: s.batches.getBatch,
		},
		{
			name: "cancelBatch", method: http.MethodPost, path: "/orgs/{org}/users/{user}/batches/{batch}/cancel",
			summary: "Cancel a batch: no new lines start, and results so far are kept", writes: true, body: workOrder{},
			answer: Batch{}, serve: s.batches.cancelBatch,
		},

		{
			name: "listWebhooks", method: http.MethodGet, path: "/webhooks",
			summary: "List webhook targets, and which of them are disabled because they answered 410",
			query:   []parameter{{"org", "Only those of this org"}},
			answer:  page[webhook.Target]{}, serve: s.webhooks.listWebhooks,
		},
		{
			name: "listDeadWebhooks", method: http.MethodGet, path: "/webhooks/dead",
			summary: "List abandoned deliveries by org, newest first",
			query:   []parameter{orgsParameter, {"limit", "Maximum number per org, 1 to 1000; default: 100"}},
			answer:  deadPage{},
			serve:   s.webhooks.listDeadWebhooks,
		},
		{
			name: "replayWebhook", method: http.MethodPost, path: "/webhooks/dead/{letter}/replay",
			summary: "Retry abandoned deliveries, with the same webhook-id", writes: true,
			query: []parameter{orgsParameter, reasonParameter}, body: workOrder{}, answer: webhook.DeadLetter{},
			serve: s.webhooks.replayWebhook,
		},
		{
			name: "enableWebhook", method: http.MethodPost, path: "/orgs/{org}/webhooks/{target}/enable",
			summary: "Enable a disabled target again; dead letters are not replayed", writes: true,
			body: workOrder{}, answer: webhook.Target{}, serve: s.webhooks.enableWebhook,
		},
	}
}

// spendingRoutes returns the routes for usage, refusals and the ledger.
func (s *Server) spendingRoutes() []route {
	return []route{
		{
			name: "getTop", method: http.MethodGet, path: "/top",
			summary: "Sample current activity: spending of the last minute against limits, pools and their quota, slowest calls",
			query: []parameter{
				orgsParameter,
				{"user", "An additional user whose limits to show, as org/user"},
				{"by", "Group calls of the last minute by one of " + strings.Join(ledger.Names("NAME"), ", ") +
					"; default: the first label, otherwise model"},
				filterParameter,
			}, answer: top.Snapshot{},
			serve: s.system.top,
		},
		{
			name: "listCalibration", method: http.MethodGet, path: "/calibration",
			summary: "List learned token ratios of models whose tokenizer is not public", answer: page[calibration.Row]{},
			serve: s.system.listCalibration,
		},

		{
			name: "getUsage", method: http.MethodGet, path: "/orgs/{org}/usage",
			summary: "Sum up spending, from the ledger's totals by day or hour, or from its entries for runs, labels and " +
				"filters that these lack",
			query: []parameter{
				{
					"from",
					"First day, such as 2026-11-01, or a time (RFC 3339) to sum up by hour; default: today",
				},
				{"to", "Last day, or a time; default: today"},
				{"tz", "Time zone of days and hours, such as Europe/Berlin; default: UTC"},
				{
					"by",
					"Any of " + strings.Join(ledger.Groupings(), ", ") + " and one label:NAME, separated by commas; " +
						"default: user,model",
				},
				filterParameter,
			},
			answer: Usage{}, serve: s.usage.getUsage,
		},

		{
			name: "getSpend", method: http.MethodGet, path: "/spend",
			summary: "Group spending by any dimensions, with its course and the period before", query: spendParameters,
			answer: Spend{}, serve: s.usage.getSpend,
		},
		{
			name: "searchCalls", method: http.MethodGet, path: "/orgs/{org}/calls",
			summary: "Search ledger entries, one or more per call, in pages",
			query: append([]parameter{
				filterParameter,
				{"sort", "newest or cost (highest first, one page); default: newest"},
				{"limit", "Maximum number of entries; default: 50"},
				{"before", "Continue here: next of the page before"},
			}, periodParameters...),
			answer: CallPage{}, serve: s.usage.searchCalls,
		},

		{
			name: "listRefusals", method: http.MethodGet, path: "/refusals",
			summary: "Count the calls that limits refused or delayed, by user and limit",
			query: append([]parameter{
				orgsParameter,
				{"user", "Only those of this user"},
				{"by", "hour: also by hour for the last 14 days, and by UTC day before that"},
			}, refusalPeriod...),
			answer: page[Refusal]{}, serve: s.usage.listRefusals,
		},

		{
			name: "explain", method: http.MethodGet, path: "/why/{id}",
			summary: "Explain why a call, job or user waits or is refused: the limits and their usage, when capacity " +
				"returns, who uses most, and what would admit the call",
			query: []parameter{{"org", "Only in this org; required if several orgs have a user with that name"}}, answer: Why{},
			serve: s.why.explain,
		},

		{
			name: "listLedger", method: http.MethodGet, path: "/orgs/{org}/ledger",
			summary: "Stream ledger entries as JSON lines; if an error occurs, it is the last line",
			query: append([]parameter{{"order", "oldest or newest first; default: oldest"}, filterParameter},
				periodParameters...),
			lines: true, answer: budget.Entry{}, serve: s.ledger.listLedger,
		},
		{
			name: "listCorrections", method: http.MethodGet, path: "/orgs/{org}/corrections",
			summary: "Stream manual corrections of the org's bill, oldest first", query: periodParameters,
			lines: true, answer: budget.AuditRecord{}, serve: s.ledger.listCorrections,
		},
		{
			name: "createCorrection", method: http.MethodPost, path: "/orgs/{org}/corrections",
			summary: "Correct a bill by an amount; adds an entry and never changes existing ones", writes: true,
			body: correction{}, answer: Corrected{}, status: 201, serve: s.ledger.createCorrection,
		},
		{
			name: "listUnresolved", method: http.MethodGet, path: "/orgs/{org}/unresolved",
			summary: "List charges that arrived too late to be booked automatically", answer: page[Unresolved]{},
			serve: s.ledger.listUnresolved,
		},
		{
			name: "resolve", method: http.MethodPost, path: "/orgs/{org}/unresolved/{call}",
			summary: "Book such a charge, or drop it", writes: true, body: resolution{}, answer: Corrected{},
			serve: s.ledger.resolve,
		},
		{
			name: "listCaps", method: http.MethodGet, path: "/caps",
			summary: "List the spend caps of providers and of the deployment, with their usage", answer: page[Cap]{},
			serve: s.system.listCaps,
		},
	}
}
