package admin

import (
	"net/http"
	"slices"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants/orgdata"
)

// route is an entry of the route table and of the OpenAPI document.
type route struct {
	name    string // operationId, also used in the log
	method  string
	path    string // below prefix, in net/http's pattern syntax
	summary string
	writes  bool
	local   bool // local only: whoever creates administrators has Redis access anyway
	query   []parameter
	body    any      // a value of the body's type; nil: none
	answer  any      // of the response type, or of one line of it; nil: 204
	lines   bool     // the response is a stream of JSON lines
	kinds   []string // the response is a file of one of these media types, not JSON
	status  int      // on success
	serve   handler
}

// handler serves one route and returns the response.
type handler func(c *call) (any, error)

// parameter is a query parameter.
type parameter struct{ name, text string }

var refusalPeriod = []parameter{
	{"from", "Hours since this time (RFC 3339); default: a day ago"},
	{"to", "Before this time (RFC 3339); default: now"},
}

var reasonParameter = parameter{"reason", "Reason, for the audit"}

// table returns all routes.
func (s *Server) table() []route {
	return slices.Concat(s.orgRoutes(), s.workRoutes(), s.spendingRoutes(), s.requestRoutes(), s.financeRoutes(),
		s.systemRoutes())
}

// orgRoutes returns the routes for orgs and what belongs to them.
func (s *Server) orgRoutes() []route {
	return []route{
		{
			name: "listOrgs", method: http.MethodGet, path: "/orgs", summary: "List orgs", answer: page[Org]{},
			query: []parameter{{"deleted", "true: also deleted orgs that have a ledger"}}, serve: s.orgs.listOrgs,
		},
		{
			name: "createOrg", method: http.MethodPost, path: "/orgs", summary: "Create an org", writes: true, body: newOrg{},
			answer: Org{}, status: 201, serve: s.orgs.createOrg,
		},
		{
			name: "getOrg", method: http.MethodGet, path: "/orgs/{org}", summary: "Show an org", answer: Org{},
			serve: s.orgs.getOrg,
		},
		{
			name: "updateOrg", method: http.MethodPatch, path: "/orgs/{org}",
			summary: "Change an org; null resets a field to the file's value or the default", writes: true,
			query: []parameter{reasonParameter}, body: orgPatch{}, answer: Org{}, serve: s.orgs.updateOrg,
		},
		{
			name: "deleteOrg", method: http.MethodDelete, path: "/orgs/{org}",
			summary: "Remove the runtime changes of an org; the file's values, its ledger and its jobs are kept", writes: true,
			query: []parameter{reasonParameter}, serve: s.orgs.deleteOrg,
		},

		{
			name: "listUsers", method: http.MethodGet, path: "/orgs/{org}/users", summary: "List an org's users",
			answer: page[User]{}, serve: s.users.listUsers,
		},
		{
			name: "createUser", method: http.MethodPost, path: "/orgs/{org}/users", summary: "Create a user", writes: true,
			body: newUser{}, answer: User{}, status: 201, serve: s.users.createUser,
		},
		{
			name: "getUser", method: http.MethodGet, path: "/orgs/{org}/users/{user}", summary: "Show a user", answer: User{},
			serve: s.users.getUser,
		},
		{
			name: "updateUser", method: http.MethodPatch, path: "/orgs/{org}/users/{user}", summary: "Change a user",
			writes: true, query: []parameter{reasonParameter}, body: userPatch{}, answer: User{}, serve: s.users.updateUser,
		},
		{
			name: "deleteUser", method: http.MethodDelete, path: "/orgs/{org}/users/{user}",
			summary: "Remove a user and its runtime keys", writes: true, query: []parameter{reasonParameter},
			serve: s.users.deleteUser,
		},

		{
			name: "listKeys", method: http.MethodGet, path: "/orgs/{org}/keys",
			summary: "List an org's API keys, without their secrets", query: []parameter{{"user", "Only those of this user"}},
			answer: page[Key]{}, serve: s.keys.listKeys,
		},
		{
			name: "createKey", method: http.MethodPost, path: "/orgs/{org}/keys",
			summary: "Create an API key; only this response contains the key itself", writes: true, body: newKey{},
			answer: NewKey{}, status: 201, serve: s.keys.createKey,
		},
		{
			name: "getKey", method: http.MethodGet, path: "/orgs/{org}/keys/{key}", summary: "Show an API key", answer: Key{},
			serve: s.keys.getKey,
		},
		{
			name: "updateKey", method: http.MethodPatch, path: "/orgs/{org}/keys/{key}",
			summary: "Change an API key; cancel_jobs cancels the jobs of a disabled key", writes: true,
			query: []parameter{reasonParameter}, body: keyChange{}, answer: Key{}, serve: s.keys.updateKey,
		},
		{
			name: "rotateKey", method: http.MethodPost, path: "/orgs/{org}/keys/{key}/rotate",
			summary: "Create a new key with the same id; the old one works until the overlap ends", writes: true,
			body: rotation{}, answer: NewKey{}, serve: s.keys.rotateKey,
		},
		{
			name: "deleteKey", method: http.MethodDelete, path: "/orgs/{org}/keys/{key}", summary: "Remove an API key",
			writes: true, query: []parameter{reasonParameter}, serve: s.keys.deleteKey,
		},

		{
			name: "listRuns", method: http.MethodGet, path: "/orgs/{org}/runs",
			summary: "List the open runs of an org, with those that ended within the last hour",
			query:   []parameter{{"key", "Only those that this key gave a budget to"}}, answer: page[guard.RunView]{},
			serve: s.runs.listRuns,
		},
		{
			name: "createRun", method: http.MethodPost, path: "/orgs/{org}/keys/{key}/children",
			summary: "Give a part of a key's budget to a run; only this response contains the run's own key", writes: true,
			body: newRun{}, answer: guard.RunView{}, status: 201, serve: s.runs.createRun,
		},
		{
			name: "getRun", method: http.MethodGet, path: "/orgs/{org}/runs/{run}", summary: "Show a run",
			answer: guard.RunView{}, serve: s.runs.getRun,
		},
		{
			name: "topUpRun", method: http.MethodPost, path: "/orgs/{org}/runs/{run}/top-up",
			summary: "Add to the budget of a run; its calls continue", writes: true, body: topUp{}, answer: guard.RunView{},
			serve: s.runs.topUpRun,
		},
		{
			name: "endRun", method: http.MethodPost, path: "/orgs/{org}/runs/{run}/end",
			summary: "End a run: further calls of it are refused", writes: true, query: []parameter{reasonParameter},
			answer: guard.RunView{}, serve: s.runs.endRun,
		},

		{
			name: "listLimits", method: http.MethodGet, path: "/orgs/{org}/limits",
			summary: "List an org's limits and their usage; with user or key, the limits that apply to it. Org all: the " +
				"limits for every org",
			query: []parameter{
				{"user", "Limits and usage of this user"},
				{"key", "Limits and usage of this key"},
				{"group", "Limits and usage of this group"},
				{"plan", "Limits of this plan"},
				{"ip", "Usage of this address, for limits per address"},
			}, answer: page[Limit]{}, serve: s.limits.listLimits,
		},
		{
			name: "explainLimits", method: http.MethodGet, path: "/orgs/{org}/limits/explain",
			summary: "Explain which limits count a call of a user or key, and why others do not",
			query:   explainQuery(), answer: Explanation{}, serve: s.limits.explainLimits,
		},
		{
			name: "setLimit", method: http.MethodPatch, path: "/orgs/{org}/limits/{limit}",
			summary: "Create or change a limit; its usage is kept. With user, for that user only. Org all: a limit for every " +
				"org", writes: true, query: ownerQuery(), body: limitPatch{},
			answer: Limit{}, serve: s.limits.setLimit,
		},
		{
			name: "unsetLimit", method: http.MethodDelete, path: "/orgs/{org}/limits/{limit}",
			summary: "Drop runtime changes to a limit, or delete a runtime limit", writes: true,
			query: ownerQuery(), serve: s.limits.unsetLimit,
		},
		{
			name: "resetLimit", method: http.MethodPost, path: "/orgs/{org}/limits/{limit}/reset",
			summary: "Reset a limit's usage to zero; open calls still count, and the ledger is kept", writes: true,
			body: limitReset{}, answer: Limit{}, serve: s.limits.resetLimit,
		},
		{
			name: "resetLimits", method: http.MethodPost, path: "/orgs/{org}/limits/reset",
			summary: "Reset the usage of all limits of an org to zero, or of one limit for all that it counts, or of all " +
				"limits that count one user or key; with dry_run, only show the usage", writes: true, body: limitsReset{},
			answer: ResetPlan{}, serve: s.resets.resetLimits,
		},
		{
			name: "reopenLimits", method: http.MethodPost, path: "/orgs/{org}/limits/reopen",
			summary: "Reopen an org's limits that are closed because Redis lost its data; they count from zero",
			writes:  true, body: limitsReopen{}, serve: s.limits.reopenLimits,
		},
		{
			name: "reopenAllLimits", method: http.MethodPost, path: "/limits/reopen",
			summary: "Reopen all limits and spend caps that are closed because Redis lost its data; they count from zero",
			writes:  true, body: limitsReopen{}, serve: s.limits.reopenLimits,
		},
		{
			name: "listOverrides", method: http.MethodGet, path: "/orgs/{org}/overrides",
			summary: "List overrides of limits, including those that ended in the last week", answer: page[Override]{},
			serve: s.overrides.listOverrides,
		},
		{
			name: "createOverride", method: http.MethodPost, path: "/orgs/{org}/overrides",
			summary: "Temporarily change a limit's amount; the override expires automatically",
			writes:  true, body: newOverride{},
			answer: Override{}, status: 201, serve: s.overrides.createOverride,
		},
		{
			name: "deleteOverride", method: http.MethodDelete, path: "/orgs/{org}/overrides/{override}",
			summary: "End an override now", writes: true, query: []parameter{reasonParameter},
			serve: s.overrides.deleteOverride,
		},

		{
			name: "listCredentials", method: http.MethodGet, path: "/orgs/{org}/credentials",
			summary: "List the org's own credentials for providers, without the secrets", answer: page[Credential]{},
			serve: s.credentials.listCredentials,
		},
		{
			name: "setCredential", method: http.MethodPut, path: "/orgs/{org}/credentials/{provider}",
			summary: "Set the org's own credential for a provider; it cannot be read back", writes: true,
			query: []parameter{reasonParameter}, body: newCredential{}, answer: Credential{},
			serve: s.credentials.setCredential,
		},
		{
			name: "deleteCredential", method: http.MethodDelete, path: "/orgs/{org}/credentials/{provider}",
			summary: "Remove the org's own credential; its calls use the deployment's account again", writes: true,
			query: []parameter{reasonParameter}, serve: s.credentials.deleteCredential,
		},

		{
			name: "getDeclaration", method: http.MethodGet, path: "/orgs/{org}/declaration",
			summary: "Show an org, with its users, keys and limits in force, in the form that apply reads",
			answer:  Declaration{}, serve: s.declarations.getDeclaration,
		},
		{
			name: "getRecords", method: http.MethodGet, path: "/orgs/{org}/records",
			summary: "Show the runtime changes of an org, without keys, their hashes and credentials",
			answer:  map[string]any{}, serve: s.declarations.getRecords,
		},
		{
			name: "exportOrg", method: http.MethodGet, path: "/orgs/{org}/export",
			summary: "Stream all stored data of an org as JSON lines, without secrets, bodies and file contents; the last " +
				"line has type end", lines: true, answer: orgdata.ExportLine{}, serve: s.orgData.exportOrg,
		},
		{
			name: "purgeOrg", method: http.MethodPost, path: "/orgs/{org}/purge",
			summary: "Remove all stored data of a disabled org that is not in the file; with dry_run, only count it",
			writes:  true, body: purge{}, answer: Purged{}, serve: s.orgData.purgeOrg,
		},
		{
			name: "applyOrg", method: http.MethodPost, path: "/orgs/{org}/apply",
			summary: "Make an org match its declaration; with dry_run, only list the changes", body: application{},
			answer: Plan{}, serve: s.declarations.apply,
		},
	}
}

// systemRoutes returns the routes for administrators and the deployment.
func (s *Server) systemRoutes() []route {
	return []route{
		{
			name: "listStops", method: http.MethodGet, path: "/stops", summary: "List what spending is stopped",
			answer: page[Stop]{}, serve: s.stops.listStops,
		},
		{
			name: "stopSpending", method: http.MethodPut, path: "/orgs/{org}/stop",
			summary: "Stop all spending of an org: new and waiting calls get 403, jobs and batches are kept, running calls " +
				"finish. Org all: of everybody", writes: true, query: []parameter{reasonParameter}, body: stopOrder{},
			answer: Stop{}, serve: s.stops.stop,
		},
		{
			name: "resumeSpending", method: http.MethodDelete, path: "/orgs/{org}/stop",
			summary: "Resume the spending of an org. Org all: the stop of everybody; orgs stopped themselves stay stopped",
			writes:  true, query: []parameter{reasonParameter}, serve: s.stops.resume,
		},

		{
			name: "listBrakes", method: http.MethodGet, path: "/brakes",
			summary: "List brakes that fired or were released for a subject, with what they saw",
			query:   []parameter{orgsParameter}, answer: page[FiredBrake]{}, serve: s.brakes.listBrakes,
		},
		{
			name: "releaseBrake", method: http.MethodPost, path: "/orgs/{org}/brakes/{brake}/release",
			summary: "Release a brake for a subject: its calls run again, and the brake does not fire for it for a while",
			writes:  true, body: brakeRelease{}, answer: FiredBrake{}, serve: s.brakes.release,
		},
		{
			name: "stopByBrake", method: http.MethodPost, path: "/orgs/{org}/brakes/{brake}/stop",
			summary: "Stop the calls of a subject by hand, as if the brake had fired", writes: true, body: brakeRelease{},
			answer: FiredBrake{}, serve: s.brakes.stop,
		},

		{
			name: "listAdmins", method: http.MethodGet, path: "/admins", summary: "List administrators",
			answer: page[Admin]{}, serve: s.admins.listAdmins,
		},
		{
			name: "createAdmin", method: http.MethodPost, path: "/admins",
			summary: "Create an administrator's key; not over the network", writes: true, local: true, body: newAdmin{},
			answer: NewAdmin{}, status: 201, serve: s.admins.createAdmin,
		},
		{
			name: "updateAdmin", method: http.MethodPatch, path: "/admins/{admin}",
			summary: "Change an administrator; not over the network", writes: true, local: true,
			query: []parameter{reasonParameter}, body: adminPatch{}, answer: Admin{}, serve: s.admins.updateAdmin,
		},
		{
			name: "deleteAdmin", method: http.MethodDelete, path: "/admins/{admin}",
			summary: "Remove an administrator; not over the network", writes: true, local: true,
			query: []parameter{reasonParameter}, serve: s.admins.deleteAdmin,
		},

		{
			name: "reloadConfig", method: http.MethodPost, path: "/config/reload",
			summary: "Reload the configuration file of this process, as SIGHUP does", writes: true, answer: Reloaded{},
			serve: s.system.reload,
		},
		{
			name: "signIn", method: http.MethodPost, path: "/session",
			summary: "Record a console sign-in with this key in the audit", answer: Self{}, serve: s.admins.signIn,
		},
		{
			name: "signOut", method: http.MethodDelete, path: "/session",
			summary: "Record a console sign-out in the audit", answer: Self{}, serve: s.admins.signOut,
		},
		{
			name: "getSelf", method: http.MethodGet, path: "/self",
			summary: "Show whose key this is, and whether it is read-only", answer: Self{}, serve: s.admins.self,
		},
		{
			name: "listAudit", method: http.MethodGet, path: "/audit", summary: "List changes, newest first",
			query: auditParameters, answer: auditPage{}, serve: s.audit.listAudit,
		},
		{
			name: "openAPI", method: http.MethodGet, path: "/openapi.json", summary: "This document", answer: map[string]any{},
			serve: s.system.document,
		},
	}
}
