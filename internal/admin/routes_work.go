package admin

import (
	"net/http"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/top"
	"github.com/llmguard/llmguard/internal/webhook"
)

// workRoutes are about calls that wait: the queue, jobs, batches, and what is sent about them.
func (s *Server) workRoutes() []route {
	return []route{
		{
			name: "listQueue", method: http.MethodGet, path: "/queue",
			summary: "Show what waits: pools, their quota in use, flows and what is parked",
			query:   []parameter{{"pool", "Only this pool"}, orgsParameter}, answer: page[QueuePool]{},
			serve: s.queues.listQueue,
		},
		{
			name: "listDeadJobs", method: http.MethodGet, path: "/queue/dead",
			summary: "List the dead letters, the newest of each pool first",
			query: []parameter{
				{"pool", "Only this pool"},
				orgsParameter,
				{"limit", "How many of a pool, 1 to 1000; left out: 100"},
			}, answer: jobPage{}, serve: s.queues.listDead,
		},
		{
			name: "listJobs", method: http.MethodGet, path: "/jobs", summary: "List jobs, the newest first",
			query: []parameter{
				orgsParameter,
				{"user", "Only this user's"},
				{"model", "Only of this model, as the request named it"},
				{"status", "Only queued, running, succeeded, failed, cancelled or expired ones"},
				{"since", "Only those submitted then or later (RFC 3339)"},
				{"limit", "How many, 1 to 1000; left out: 50"},
			},
			answer: jobPage{}, serve: s.jobs.listJobs,
		},
		{
			name: "getJob", method: http.MethodGet, path: "/jobs/{job}",
			summary: "Show a job of any org, with its place while it waits", query: []parameter{orgsParameter},
			answer: JobLine{}, serve: s.jobs.getJob,
		},
		{
			name: "followJob", method: http.MethodGet, path: "/jobs/{job}/events",
			summary: "Stream a job's states as JSON lines until it has ended; an error on the way is the last line",
			query:   []parameter{orgsParameter}, lines: true, answer: JobEvent{}, serve: s.jobs.followJob,
		},
		{
			name: "cancelJob", method: http.MethodPost, path: "/orgs/{org}/jobs/{job}/cancel",
			summary: "Cancel a job: a waiting one ends, a running one is asked to stop", writes: true, body: workOrder{},
			answer: Job{}, serve: s.jobs.cancelJob,
		},
		{
			name: "replayJob", method: http.MethodPost, path: "/jobs/{job}/replay",
			summary: "Put a dead letter into the queue again, as a new job", writes: true, body: workOrder{}, answer: Job{},
			status: 201, serve: s.jobs.replayJob,
		},
		{
			name: "listBatches", method: http.MethodGet, path: "/batches",
			summary: "List the batches of all orgs, those that have not ended first, then the newest",
			query: []parameter{
				{"org", "Only this org's"},
				{"user", "Only this user's"},
				{"status", "open: only those that have not ended"},
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
			summary: "List where events are sent, and which targets were switched off because they answered 410",
			query:   []parameter{{"org", "Only this org's"}}, answer: page[webhook.Target]{}, serve: s.webhooks.listWebhooks,
		},
		{
			name: "listDeadWebhooks", method: http.MethodGet, path: "/webhooks/dead",
			summary: "List deliveries that were given up, the newest of each org first",
			query:   []parameter{orgsParameter, {"limit", "How many of an org, 1 to 1000; left out: 100"}}, answer: deadPage{},
			serve: s.webhooks.listDeadWebhooks,
		},
		{
			name: "replayWebhook", method: http.MethodPost, path: "/webhooks/dead/{letter}/replay",
			summary: "Deliver again what was given up, with the same webhook-id", writes: true,
			query: []parameter{orgsParameter, reasonParameter}, body: workOrder{}, answer: webhook.DeadLetter{},
			serve: s.webhooks.replayWebhook,
		},
		{
			name: "enableWebhook", method: http.MethodPost, path: "/orgs/{org}/webhooks/{target}/enable",
			summary: "Send events to a switched-off target again; dead letters are not replayed", writes: true,
			body: workOrder{}, answer: webhook.Target{}, serve: s.webhooks.enableWebhook,
		},
	}
}

// spendingRoutes are about what is spent and refused, and the books.
func (s *Server) spendingRoutes() []route {
	return []route{
		{
			name: "getTop", method: http.MethodGet, path: "/top",
			summary: "Sample what happens now: spending of the last minute against limits, pools and their quota, slowest calls",
			query: []parameter{
				orgsParameter,
				{"user", "A user whose limits are wanted, as org/user, besides those who spend most"},
			}, answer: top.Snapshot{},
			serve: s.system.top,
		},
		{
			name: "listCalibration", method: http.MethodGet, path: "/calibration",
			summary: "List what was learned of models whose tokenizer is not public", answer: page[calibration.Row]{},
			serve: s.system.listCalibration,
		},

		{
			name: "getUsage", method: http.MethodGet, path: "/orgs/{org}/usage",
			summary: "Add up what was spent, from the ledger's sums by day or by hour",
			query: []parameter{
				{
					"from",
					"First day, such as 2026-11-01, or a time (RFC 3339), which means the hours since then; left out: today",
				},
				{"to", "Last day, or a time; left out: today"},
				{"tz", "The zone of days and hours, such as Europe/Berlin; left out: UTC"},
				{"by", "Any of day, hour, user, key, model, provider and endpoint, with commas between; left out: user,model"},
			},
			answer: Usage{}, serve: s.usage.getUsage,
		},

		{
			name: "listRefusals", method: http.MethodGet, path: "/refusals",
			summary: "Count the calls that limits refused or made wait, by user and limit",
			query: append([]parameter{
				orgsParameter,
				{"user", "Only this user's"},
				{"by", "hour: by the hour as well, for 14 days, and by the UTC day before that"},
			}, refusalPeriod...),
			answer: page[Refusal]{}, serve: s.usage.listRefusals,
		},

		{
			name: "explain", method: http.MethodGet, path: "/why/{id}",
			summary: "Explain why a call, a job or a user waits or is refused: the limits with their numbers, what frees " +
				"when, who holds the most, and what lets it through",
			query: []parameter{{"org", "Only in this org; needed where several have a user of that name"}}, answer: Why{},
			serve: s.why.explain,
		},

		{
			name: "listLedger", method: http.MethodGet, path: "/orgs/{org}/ledger",
			summary: "Stream the ledger's entries as JSON lines; an error on the way is the last line",
			query:   append([]parameter{{"order", "oldest or newest first; left out: oldest"}}, periodParameters...),
			lines:   true, answer: budget.Entry{}, serve: s.ledger.listLedger,
		},
		{
			name: "listCorrections", method: http.MethodGet, path: "/orgs/{org}/corrections",
			summary: "Stream what was corrected of the org's bill by hand, the oldest first", query: periodParameters,
			lines: true, answer: budget.AuditRecord{}, serve: s.ledger.listCorrections,
		},
		{
			name: "createCorrection", method: http.MethodPost, path: "/orgs/{org}/corrections",
			summary: "Correct a bill by an amount; entries are never changed, a new one is added", writes: true,
			body: correction{}, answer: Corrected{}, status: 201, serve: s.ledger.createCorrection,
		},
		{
			name: "listUnresolved", method: http.MethodGet, path: "/orgs/{org}/unresolved",
			summary: "List charges that came too late to be booked automatically", answer: page[Unresolved]{},
			serve: s.ledger.listUnresolved,
		},
		{
			name: "resolve", method: http.MethodPost, path: "/orgs/{org}/unresolved/{call}",
			summary: "Book such a charge, or drop it", writes: true, body: resolution{}, answer: Corrected{},
			serve: s.ledger.resolve,
		},
		{
			name: "listCaps", method: http.MethodGet, path: "/caps",
			summary: "List the spend caps of providers and of the deployment, with what is used of them", answer: page[Cap]{},
			serve: s.system.listCaps,
		},
	}
}
