package admin

import (
	"net/http"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/tenants/orgdata"
	"github.com/llmguard/llmguard/internal/top"
	"github.com/llmguard/llmguard/internal/webhook"
)

// route is one entry of the fixed table, and of the OpenAPI document.
type route struct {
	name    string // operationId, and the log's word for it
	method  string
	path    string // below prefix, as net/http matches it
	summary string
	writes  bool
	local   bool // not over the network: who makes administrators has Redis at hand
	query   []parameter
	body    any  // a value of the body's type; nil: none
	answer  any  // of the answer's, or of a line of it; nil: 204
	lines   bool // the answer is a stream of JSON lines
	status  int  // of success
	serve   handler
}

// handler serves one route: what it returns is the answer.
type handler func(c *call) (any, error)

// parameter is one of the query's.
type parameter struct{ name, text string }

var refusalPeriod = []parameter{
	{"from", "The hours since this time (RFC 3339); left out: a day ago"},
	{"to", "Before this time (RFC 3339); left out: now"},
}

var reasonParameter = parameter{"reason", "Why, for the audit"}

// table has all routes.
func (s *Server) table() []route {
	return []route{
		{name: "listOrgs", method: http.MethodGet, path: "/orgs", summary: "List the orgs", answer: page[Org]{},
			serve: s.orgs.listOrgs},
		{name: "createOrg", method: http.MethodPost, path: "/orgs", summary: "Make an org", writes: true, body: newOrg{},
			answer: Org{}, status: 201, serve: s.orgs.createOrg},
		{name: "getOrg", method: http.MethodGet, path: "/orgs/{org}", summary: "Show an org", answer: Org{},
			serve: s.orgs.getOrg},
		{name: "updateOrg", method: http.MethodPatch, path: "/orgs/{org}",
			summary: "Change an org; null gives a field back to the file, or to its default", writes: true,
			query: []parameter{reasonParameter}, body: orgPatch{}, answer: Org{}, serve: s.orgs.updateOrg},
		{name: "deleteOrg", method: http.MethodDelete, path: "/orgs/{org}",
			summary: "Remove what is recorded of an org; what the file says stays, and so do its ledger and jobs", writes: true,
			query: []parameter{reasonParameter}, serve: s.orgs.deleteOrg},

		{name: "listUsers", method: http.MethodGet, path: "/orgs/{org}/users", summary: "List an org's users",
			answer: page[User]{}, serve: s.users.listUsers},
		{name: "createUser", method: http.MethodPost, path: "/orgs/{org}/users", summary: "Make a user", writes: true,
			body: newUser{}, answer: User{}, status: 201, serve: s.users.createUser},
		{name: "getUser", method: http.MethodGet, path: "/orgs/{org}/users/{user}", summary: "Show a user", answer: User{},
			serve: s.users.getUser},
		{name: "updateUser", method: http.MethodPatch, path: "/orgs/{org}/users/{user}", summary: "Change a user",
			writes: true, query: []parameter{reasonParameter}, body: userPatch{}, answer: User{}, serve: s.users.updateUser},
		{name: "deleteUser", method: http.MethodDelete, path: "/orgs/{org}/users/{user}",
			summary: "Remove a user and the keys that were made here", writes: true, query: []parameter{reasonParameter},
			serve: s.users.deleteUser},

		{name: "listKeys", method: http.MethodGet, path: "/orgs/{org}/keys",
			summary: "List an org's API keys, never the keys themselves", query: []parameter{{"user", "Only this user's"}},
			answer: page[Key]{}, serve: s.keys.listKeys},
		{name: "createKey", method: http.MethodPost, path: "/orgs/{org}/keys",
			summary: "Make an API key; the answer is the only one that has the key itself", writes: true, body: newKey{},
			answer: NewKey{}, status: 201, serve: s.keys.createKey},
		{name: "getKey", method: http.MethodGet, path: "/orgs/{org}/keys/{key}", summary: "Show an API key", answer: Key{},
			serve: s.keys.getKey},
		{name: "updateKey", method: http.MethodPatch, path: "/orgs/{org}/keys/{key}",
			summary: "Change an API key; cancel_jobs cancels the jobs of one that is disabled", writes: true,
			query: []parameter{reasonParameter}, body: keyChange{}, answer: Key{}, serve: s.keys.updateKey},
		{name: "rotateKey", method: http.MethodPost, path: "/orgs/{org}/keys/{key}/rotate",
			summary: "Make a new key under the same id; the old one works until the overlap is over", writes: true,
			body: rotation{}, answer: NewKey{}, serve: s.keys.rotateKey},
		{name: "deleteKey", method: http.MethodDelete, path: "/orgs/{org}/keys/{key}", summary: "Remove an API key",
			writes: true, query: []parameter{reasonParameter}, serve: s.keys.deleteKey},

		{name: "listLimits", method: http.MethodGet, path: "/orgs/{org}/limits",
			summary: "List an org's limits with what is used of them; with user or key, those that user and key stand under. " +
				"Org all: the limits of every org",
			query: []parameter{{"user", "As this user stands"}, {"key", "As this key stands"},
				{"ip", "As this address stands, for limits per address"}}, answer: page[Limit]{}, serve: s.limits.listLimits},
		{name: "setLimit", method: http.MethodPatch, path: "/orgs/{org}/limits/{limit}",
			summary: "Make or change a limit; what was used of it stays. With user, for that user alone. Org all: a limit of " +
				"every org", writes: true, query: []parameter{{"user", "For this user alone"}, reasonParameter}, body: limitPatch{},
			answer: Limit{}, serve: s.limits.setLimit},
		{name: "unsetLimit", method: http.MethodDelete, path: "/orgs/{org}/limits/{limit}",
			summary: "Give a limit back to the file, or remove one that was made here", writes: true,
			query: []parameter{{"user", "The one for this user alone"}, reasonParameter}, serve: s.limits.unsetLimit},
		{name: "resetLimit", method: http.MethodPost, path: "/orgs/{org}/limits/{limit}/reset",
			summary: "Forget what was charged to a limit; open calls stay counted, and the ledger keeps all", writes: true,
			body: limitReset{}, answer: Limit{}, serve: s.limits.resetLimit},
		{name: "reopenLimits", method: http.MethodPost, path: "/orgs/{org}/limits/reopen",
			summary: "Let an org's limits count from zero that are closed because Redis lost its data", writes: true,
			body: limitsReopen{}, serve: s.limits.reopenLimits},
		{name: "reopenAllLimits", method: http.MethodPost, path: "/limits/reopen",
			summary: "Let all limits and spend caps count from zero that are closed because Redis lost its data", writes: true,
			body: limitsReopen{}, serve: s.limits.reopenLimits},
		{name: "listOverrides", method: http.MethodGet, path: "/orgs/{org}/overrides",
			summary: "List overrides of limits, those of the last week that ended included", answer: page[Override]{},
			serve: s.overrides.listOverrides},
		{name: "createOverride", method: http.MethodPost, path: "/orgs/{org}/overrides",
			summary: "Change a limit's amount until a time; it ends by itself", writes: true, body: newOverride{},
			answer: Override{}, status: 201, serve: s.overrides.createOverride},
		{name: "deleteOverride", method: http.MethodDelete, path: "/orgs/{org}/overrides/{override}",
			summary: "End an override now", writes: true, query: []parameter{reasonParameter},
			serve: s.overrides.deleteOverride},

		{name: "listCredentials", method: http.MethodGet, path: "/orgs/{org}/credentials",
			summary: "List the org's own credentials at providers, never the secrets", answer: page[Credential]{},
			serve: s.credentials.listCredentials},
		{name: "setCredential", method: http.MethodPut, path: "/orgs/{org}/credentials/{provider}",
			summary: "Set the org's own credential at a provider; it cannot be read back", writes: true,
			query: []parameter{reasonParameter}, body: newCredential{}, answer: Credential{},
			serve: s.credentials.setCredential},
		{name: "deleteCredential", method: http.MethodDelete, path: "/orgs/{org}/credentials/{provider}",
			summary: "Remove it: the org's calls go on the deployment's account again", writes: true,
			query: []parameter{reasonParameter}, serve: s.credentials.deleteCredential},

		{name: "listQueue", method: http.MethodGet, path: "/queue",
			summary: "Show what waits: pools, their quota in use, flows and what is parked",
			query:   []parameter{{"pool", "Only this pool"}, orgsParameter}, answer: page[QueuePool]{},
			serve: s.queues.listQueue},
		{name: "listDeadJobs", method: http.MethodGet, path: "/queue/dead",
			summary: "List the dead letters, the newest of each pool first",
			query: []parameter{{"pool", "Only this pool"}, orgsParameter,
				{"limit", "How many of a pool, 1 to 1000; left out: 100"}}, answer: jobPage{}, serve: s.queues.listDead},
		{name: "listJobs", method: http.MethodGet, path: "/jobs", summary: "List jobs, the newest first",
			query: []parameter{orgsParameter, {"user", "Only this user's"},
				{"model", "Only of this model, as the request named it"},
				{"status", "Only queued, running, succeeded, failed, cancelled or expired ones"},
				{"since", "Only those submitted then or later (RFC 3339)"}, {"limit", "How many, 1 to 1000; left out: 50"}},
			answer: jobPage{}, serve: s.jobs.listJobs},
		{name: "getJob", method: http.MethodGet, path: "/jobs/{job}",
			summary: "Show a job of any org, with its place while it waits", query: []parameter{orgsParameter},
			answer: JobLine{}, serve: s.jobs.getJob},
		{name: "followJob", method: http.MethodGet, path: "/jobs/{job}/events",
			summary: "Stream a job's states as JSON lines until it has ended; an error on the way is the last line",
			query:   []parameter{orgsParameter}, lines: true, answer: JobEvent{}, serve: s.jobs.followJob},
		{name: "cancelJob", method: http.MethodPost, path: "/orgs/{org}/jobs/{job}/cancel",
			summary: "Cancel a job: a waiting one ends, a running one is asked to stop", writes: true, body: workOrder{},
			answer: Job{}, serve: s.jobs.cancelJob},
		{name: "replayJob", method: http.MethodPost, path: "/jobs/{job}/replay",
			summary: "Put a dead letter into the queue again, as a new job", writes: true, body: workOrder{}, answer: Job{},
			status: 201, serve: s.jobs.replayJob},
		{name: "listBatches", method: http.MethodGet, path: "/batches",
			summary: "List the batches of all orgs, those that have not ended first, then the newest",
			query: []parameter{{"org", "Only this org's"}, {"user", "Only this user's"},
				{"status", "open: only those that have not ended"}}, answer: batchPage{}, serve: s.batches.listBatches},
		{name: "getBatch", method: http.MethodGet, path: "/batches/{batch}", summary: "Show a batch of any org",
			answer: BatchLine{}, serve: s.batches.getBatch},
		{name: "cancelBatch", method: http.MethodPost, path: "/orgs/{org}/users/{user}/batches/{batch}/cancel",
			summary: "Cancel a batch: no new lines start, and results so far are kept", writes: true, body: workOrder{},
			answer: Batch{}, serve: s.batches.cancelBatch},

		{name: "listWebhooks", method: http.MethodGet, path: "/webhooks",
			summary: "List where events are sent, and which targets were switched off because they answered 410",
			query:   []parameter{{"org", "Only this org's"}}, answer: page[webhook.Target]{}, serve: s.webhooks.listWebhooks},
		{name: "listDeadWebhooks", method: http.MethodGet, path: "/webhooks/dead",
			summary: "List deliveries that were given up, the newest of each org first",
			query:   []parameter{orgsParameter, {"limit", "How many of an org, 1 to 1000; left out: 100"}}, answer: deadPage{},
			serve: s.webhooks.listDeadWebhooks},
		{name: "replayWebhook", method: http.MethodPost, path: "/webhooks/dead/{letter}/replay",
			summary: "Deliver again what was given up, with the same webhook-id", writes: true,
			query: []parameter{orgsParameter, reasonParameter}, body: workOrder{}, answer: webhook.DeadLetter{},
			serve: s.webhooks.replayWebhook},
		{name: "enableWebhook", method: http.MethodPost, path: "/orgs/{org}/webhooks/{target}/enable",
			summary: "Send events to a switched-off target again; dead letters are not replayed", writes: true,
			body: workOrder{}, answer: webhook.Target{}, serve: s.webhooks.enableWebhook},

		{name: "getTop", method: http.MethodGet, path: "/top",
			summary: "Sample what happens now: spending of the last minute against limits, pools and their quota, slowest calls",
			query: []parameter{orgsParameter,
				{"user", "A user whose limits are wanted, as org/user, besides those who spend most"}}, answer: top.Snapshot{},
			serve: s.system.top},
		{name: "listCalibration", method: http.MethodGet, path: "/calibration",
			summary: "List what was learned of models whose tokenizer is not public", answer: page[calibration.Row]{},
			serve: s.system.listCalibration},

		{name: "getUsage", method: http.MethodGet, path: "/orgs/{org}/usage",
			summary: "Add up what was spent, from the ledger's sums by day or by hour",
			query: []parameter{{"from",
				"First day, such as 2026-11-01, or a time (RFC 3339), which means the hours since then; left out: today"},
				{"to", "Last day, or a time; left out: today"},
				{"tz", "The zone of days and hours, such as Europe/Berlin; left out: UTC"},
				{"by", "Any of day, hour, user, key, model, provider and endpoint, with commas between; left out: user,model"}},
			answer: Usage{}, serve: s.usage.getUsage},

		{name: "listRefusals", method: http.MethodGet, path: "/refusals",
			summary: "Count the calls that limits refused or made wait, by user and limit",
			query: append([]parameter{orgsParameter, {"user", "Only this user's"},
				{"by", "hour: by the hour as well, for 14 days, and by the UTC day before that"}}, refusalPeriod...),
			answer: page[Refusal]{}, serve: s.usage.listRefusals},

		{name: "explain", method: http.MethodGet, path: "/why/{id}",
			summary: "Explain why a call, a job or a user waits or is refused: the limits with their numbers, what frees " +
				"when, who holds the most, and what lets it through",
			query: []parameter{{"org", "Only in this org; needed where several have a user of that name"}}, answer: Why{},
			serve: s.why.explain},

		{name: "listLedger", method: http.MethodGet, path: "/orgs/{org}/ledger",
			summary: "Stream the ledger's entries as JSON lines; an error on the way is the last line",
			query:   append([]parameter{{"order", "oldest or newest first; left out: oldest"}}, periodParameters...),
			lines:   true, answer: budget.Entry{}, serve: s.ledger.listLedger},
		{name: "listCorrections", method: http.MethodGet, path: "/orgs/{org}/corrections",
			summary: "Stream what was corrected of the org's bill by hand, the oldest first", query: periodParameters,
			lines: true, answer: budget.AuditRecord{}, serve: s.ledger.listCorrections},
		{name: "createCorrection", method: http.MethodPost, path: "/orgs/{org}/corrections",
			summary: "Correct a bill by an amount; entries are never changed, a new one is added", writes: true,
			body: correction{}, answer: Corrected{}, status: 201, serve: s.ledger.createCorrection},
		{name: "listUnresolved", method: http.MethodGet, path: "/orgs/{org}/unresolved",
			summary: "List charges that came too late to be booked automatically", answer: page[Unresolved]{},
			serve: s.ledger.listUnresolved},
		{name: "resolve", method: http.MethodPost, path: "/orgs/{org}/unresolved/{call}",
			summary: "Book such a charge, or drop it", writes: true, body: resolution{}, answer: Corrected{},
			serve: s.ledger.resolve},
		{name: "listCaps", method: http.MethodGet, path: "/caps",
			summary: "List the spend caps of providers and of the deployment, with what is used of them", answer: page[Cap]{},
			serve: s.system.listCaps},

		{name: "getDeclaration", method: http.MethodGet, path: "/orgs/{org}/declaration",
			summary: "Show an org, with its users, keys and limits in force, in the form that apply reads",
			answer:  Declaration{}, serve: s.declarations.getDeclaration},
		{name: "getRecords", method: http.MethodGet, path: "/orgs/{org}/records",
			summary: "Show what is recorded of an org over the file, never a key, its hash or a credential",
			answer:  map[string]any{}, serve: s.declarations.getRecords},
		{name: "exportOrg", method: http.MethodGet, path: "/orgs/{org}/export",
			summary: "Stream everything that is kept of an org as JSON lines, without secrets, bodies and contents of files; " +
				"the last line is of type end", lines: true, answer: orgdata.ExportLine{}, serve: s.orgData.exportOrg},
		{name: "purgeOrg", method: http.MethodPost, path: "/orgs/{org}/purge",
			summary: "Remove everything that is kept of a disabled org that is not in the file, or with dry_run count it",
			writes:  true, body: purge{}, answer: Purged{}, serve: s.orgData.purgeOrg},
		{name: "applyOrg", method: http.MethodPost, path: "/orgs/{org}/apply",
			summary: "Make an org as it is declared, or with dry_run say what that would change", body: application{},
			answer: Plan{}, serve: s.declarations.apply},

		{name: "listAdmins", method: http.MethodGet, path: "/admins", summary: "List the administrators",
			answer: page[Admin]{}, serve: s.admins.listAdmins},
		{name: "createAdmin", method: http.MethodPost, path: "/admins",
			summary: "Make an administrator's key; not over the network", writes: true, local: true, body: newAdmin{},
			answer: NewAdmin{}, status: 201, serve: s.admins.createAdmin},
		{name: "updateAdmin", method: http.MethodPatch, path: "/admins/{admin}",
			summary: "Change an administrator; not over the network", writes: true, local: true,
			query: []parameter{reasonParameter}, body: adminPatch{}, answer: Admin{}, serve: s.admins.updateAdmin},
		{name: "deleteAdmin", method: http.MethodDelete, path: "/admins/{admin}",
			summary: "Remove an administrator; not over the network", writes: true, local: true,
			query: []parameter{reasonParameter}, serve: s.admins.deleteAdmin},

		{name: "reloadConfig", method: http.MethodPost, path: "/config/reload",
			summary: "Read the configuration file of this process again, as SIGHUP does", writes: true, answer: Reloaded{},
			serve: s.system.reload},
		{name: "signIn", method: http.MethodPost, path: "/session",
			summary: "Record in the audit that the console was opened with this key", answer: Self{}, serve: s.admins.signIn},
		{name: "signOut", method: http.MethodDelete, path: "/session",
			summary: "Record in the audit that the console was left", answer: Self{}, serve: s.admins.signOut},
		{name: "getSelf", method: http.MethodGet, path: "/self",
			summary: "Tell whose key this is, and whether it may only read", answer: Self{}, serve: s.admins.self},
		{name: "listAudit", method: http.MethodGet, path: "/audit", summary: "List changes, the newest first",
			query: auditParameters, answer: auditPage{}, serve: s.audit.listAudit},
		{name: "openAPI", method: http.MethodGet, path: "/openapi.json", summary: "This document", answer: map[string]any{},
			serve: s.system.document},
	}
}
