package admin

import (
	"net/http"
	"slices"

	"github.com/llmguard/llmguard/internal/tenants/orgdata"
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
	return slices.Concat(s.orgRoutes(), s.workRoutes(), s.spendingRoutes(), s.systemRoutes())
}

// orgRoutes are about orgs, and what belongs to them.
func (s *Server) orgRoutes() []route {
	return []route{
		{
			name: "listOrgs", method: http.MethodGet, path: "/orgs", summary: "List the orgs", answer: page[Org]{},
			serve: s.orgs.listOrgs,
		},
		{
			name: "createOrg", method: http.MethodPost, path: "/orgs", summary: "Make an org", writes: true, body: newOrg{},
			answer: Org{}, status: 201, serve: s.orgs.createOrg,
		},
		{
			name: "getOrg", method: http.MethodGet, path: "/orgs/{org}", summary: "Show an org", answer: Org{},
			serve: s.orgs.getOrg,
		},
		{
			name: "updateOrg", method: http.MethodPatch, path: "/orgs/{org}",
			summary: "Change an org; null gives a field back to the file, or to its default", writes: true,
			query: []parameter{reasonParameter}, body: orgPatch{}, answer: Org{}, serve: s.orgs.updateOrg,
		},
		{
			name: "deleteOrg", method: http.MethodDelete, path: "/orgs/{org}",
			summary: "Remove what is recorded of an org; what the file says stays, and so do its ledger and jobs", writes: true,
			query: []parameter{reasonParameter}, serve: s.orgs.deleteOrg,
		},

		{
			name: "listUsers", method: http.MethodGet, path: "/orgs/{org}/users", summary: "List an org's users",
			answer: page[User]{}, serve: s.users.listUsers,
		},
		{
			name: "createUser", method: http.MethodPost, path: "/orgs/{org}/users", summary: "Make a user", writes: true,
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
			summary: "Remove a user and the keys that were made here", writes: true, query: []parameter{reasonParameter},
			serve: s.users.deleteUser,
		},

		{
			name: "listKeys", method: http.MethodGet, path: "/orgs/{org}/keys",
			summary: "List an org's API keys, never the keys themselves", query: []parameter{{"user", "Only this user's"}},
			answer: page[Key]{}, serve: s.keys.listKeys,
		},
		{
			name: "createKey", method: http.MethodPost, path: "/orgs/{org}/keys",
			summary: "Make an API key; the answer is the only one that has the key itself", writes: true, body: newKey{},
			answer: NewKey{}, status: 201, serve: s.keys.createKey,
		},
		{
			name: "getKey", method: http.MethodGet, path: "/orgs/{org}/keys/{key}", summary: "Show an API key", answer: Key{},
			serve: s.keys.getKey,
		},
		{
			name: "updateKey", method: http.MethodPatch, path: "/orgs/{org}/keys/{key}",
			summary: "Change an API key; cancel_jobs cancels the jobs of one that is disabled", writes: true,
			query: []parameter{reasonParameter}, body: keyChange{}, answer: Key{}, serve: s.keys.updateKey,
		},
		{
			name: "rotateKey", method: http.MethodPost, path: "/orgs/{org}/keys/{key}/rotate",
			summary: "Make a new key under the same id; the old one works until the overlap is over", writes: true,
			body: rotation{}, answer: NewKey{}, serve: s.keys.rotateKey,
		},
		{
			name: "deleteKey", method: http.MethodDelete, path: "/orgs/{org}/keys/{key}", summary: "Remove an API key",
			writes: true, query: []parameter{reasonParameter}, serve: s.keys.deleteKey,
		},

		{
			name: "listLimits", method: http.MethodGet, path: "/orgs/{org}/limits",
			summary: "List an org's limits with what is used of them; with user or key, those that user and key stand under. " +
				"Org all: the limits of every org",
			query: []parameter{
				{"user", "As this user stands"},
				{"key", "As this key stands"},
				{"ip", "As this address stands, for limits per address"},
			}, answer: page[Limit]{}, serve: s.limits.listLimits,
		},
		{
			name: "setLimit", method: http.MethodPatch, path: "/orgs/{org}/limits/{limit}",
			summary: "Make or change a limit; what was used of it stays. With user, for that user alone. Org all: a limit of " +
				"every org", writes: true, query: []parameter{{"user", "For this user alone"}, reasonParameter}, body: limitPatch{},
			answer: Limit{}, serve: s.limits.setLimit,
		},
		{
			name: "unsetLimit", method: http.MethodDelete, path: "/orgs/{org}/limits/{limit}",
			summary: "Give a limit back to the file, or remove one that was made here", writes: true,
			query: []parameter{{"user", "The one for this user alone"}, reasonParameter}, serve: s.limits.unsetLimit,
		},
		{
			name: "resetLimit", method: http.MethodPost, path: "/orgs/{org}/limits/{limit}/reset",
			summary: "Forget what was charged to a limit; open calls stay counted, and the ledger keeps all", writes: true,
			body: limitReset{}, answer: Limit{}, serve: s.limits.resetLimit,
		},
		{
			name: "reopenLimits", method: http.MethodPost, path: "/orgs/{org}/limits/reopen",
			summary: "Let an org's limits count from zero that are closed because Redis lost its data", writes: true,
			body: limitsReopen{}, serve: s.limits.reopenLimits,
		},
		{
			name: "reopenAllLimits", method: http.MethodPost, path: "/limits/reopen",
			summary: "Let all limits and spend caps count from zero that are closed because Redis lost its data", writes: true,
			body: limitsReopen{}, serve: s.limits.reopenLimits,
		},
		{
			name: "listOverrides", method: http.MethodGet, path: "/orgs/{org}/overrides",
			summary: "List overrides of limits, those of the last week that ended included", answer: page[Override]{},
			serve: s.overrides.listOverrides,
		},
		{
			name: "createOverride", method: http.MethodPost, path: "/orgs/{org}/overrides",
			summary: "Change a limit's amount until a time; it ends by itself", writes: true, body: newOverride{},
			answer: Override{}, status: 201, serve: s.overrides.createOverride,
		},
		{
			name: "deleteOverride", method: http.MethodDelete, path: "/orgs/{org}/overrides/{override}",
			summary: "End an override now", writes: true, query: []parameter{reasonParameter},
			serve: s.overrides.deleteOverride,
		},

		{
			name: "listCredentials", method: http.MethodGet, path: "/orgs/{org}/credentials",
			summary: "List the org's own credentials at providers, never the secrets", answer: page[Credential]{},
			serve: s.credentials.listCredentials,
		},
		{
			name: "setCredential", method: http.MethodPut, path: "/orgs/{org}/credentials/{provider}",
			summary: "Set the org's own credential at a provider; it cannot be read back", writes: true,
			query: []parameter{reasonParameter}, body: newCredential{}, answer: Credential{},
			serve: s.credentials.setCredential,
		},
		{
			name: "deleteCredential", method: http.MethodDelete, path: "/orgs/{org}/credentials/{provider}",
			summary: "Remove it: the org's calls go on the deployment's account again", writes: true,
			query: []parameter{reasonParameter}, serve: s.credentials.deleteCredential,
		},

		{
			name: "getDeclaration", method: http.MethodGet, path: "/orgs/{org}/declaration",
			summary: "Show an org, with its users, keys and limits in force, in the form that apply reads",
			answer:  Declaration{}, serve: s.declarations.getDeclaration,
		},
		{
			name: "getRecords", method: http.MethodGet, path: "/orgs/{org}/records",
			summary: "Show what is recorded of an org over the file, never a key, its hash or a credential",
			answer:  map[string]any{}, serve: s.declarations.getRecords,
		},
		{
			name: "exportOrg", method: http.MethodGet, path: "/orgs/{org}/export",
			summary: "Stream everything that is kept of an org as JSON lines, without secrets, bodies and contents of files; " +
				"the last line is of type end", lines: true, answer: orgdata.ExportLine{}, serve: s.orgData.exportOrg,
		},
		{
			name: "purgeOrg", method: http.MethodPost, path: "/orgs/{org}/purge",
			summary: "Remove everything that is kept of a disabled org that is not in the file, or with dry_run count it",
			writes:  true, body: purge{}, answer: Purged{}, serve: s.orgData.purgeOrg,
		},
		{
			name: "applyOrg", method: http.MethodPost, path: "/orgs/{org}/apply",
			summary: "Make an org as it is declared, or with dry_run say what that would change", body: application{},
			answer: Plan{}, serve: s.declarations.apply,
		},
	}
}

// systemRoutes are about administrators and the deployment.
func (s *Server) systemRoutes() []route {
	return []route{
		{
			name: "listAdmins", method: http.MethodGet, path: "/admins", summary: "List the administrators",
			answer: page[Admin]{}, serve: s.admins.listAdmins,
		},
		{
			name: "createAdmin", method: http.MethodPost, path: "/admins",
			summary: "Make an administrator's key; not over the network", writes: true, local: true, body: newAdmin{},
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
			summary: "Read the configuration file of this process again, as SIGHUP does", writes: true, answer: Reloaded{},
			serve: s.system.reload,
		},
		{
			name: "signIn", method: http.MethodPost, path: "/session",
			summary: "Record in the audit that the console was opened with this key", answer: Self{}, serve: s.admins.signIn,
		},
		{
			name: "signOut", method: http.MethodDelete, path: "/session",
			summary: "Record in the audit that the console was left", answer: Self{}, serve: s.admins.signOut,
		},
		{
			name: "getSelf", method: http.MethodGet, path: "/self",
			summary: "Tell whose key this is, and whether it may only read", answer: Self{}, serve: s.admins.self,
		},
		{
			name: "listAudit", method: http.MethodGet, path: "/audit", summary: "List changes, the newest first",
			query: auditParameters, answer: auditPage{}, serve: s.audit.listAudit,
		},
		{
			name: "openAPI", method: http.MethodGet, path: "/openapi.json", summary: "This document", answer: map[string]any{},
			serve: s.system.document,
		},
	}
}
