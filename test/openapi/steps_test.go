package openapi

// step is a request and its expected result.
type step struct {
	status  int
	method  string
	pattern string // path in the document
	path    string // path of the request: the pattern with ids; {override} is that of the last override
	body    string // {until} is an hour from now
	action  string // recorded in the audit; empty: nothing
}

func (s step) String() string { return s.method + " " + s.pattern }

const (
	org         = "/orgs/{org}"
	users       = org + "/users"
	keys        = org + "/keys"
	limits      = org + "/limits"
	overrides   = org + "/overrides"
	brake       = org + "/brakes/{brake}"
	credentials = org + "/credentials"
	globex      = "/orgs/globex"
)

// orgSteps create the org that the other steps use.
var orgSteps = []step{
	{201, "POST", "/orgs", "/orgs", `{"id":"globex","models":["gpt-*"],"max_wait":"10m","weight":150}`, "org.create"},
	{400, "POST", "/orgs", "/orgs", `{"id":"Not Good"}`, ""},
	{400, "POST", "/orgs", "/orgs", `{"id":"other","modles":["gpt-*"]}`, ""},
	{400, "POST", "/orgs", "/orgs", `{"id":"other","ID":"else"}`, ""},
	{400, "POST", "/orgs", "/orgs", `{"id":"other","hold":"sometimes"}`, ""},
	{400, "POST", "/orgs", "/orgs", `{"id":"other","name":"${HOME}"}`, ""},
	{200, "GET", "/orgs", "/orgs", "", ""},
	{200, "GET", org, globex, "", ""},
	{404, "GET", org, "/orgs/none", "", ""},
	{200, "PATCH", org, globex, `{"weight":null,"name":"Globex"}`, "org.update"},
}

var userSteps = []step{
	{201, "POST", users, globex + "/users", `{"id":"gus"}`, "user.create"},
	{200, "GET", users, globex + "/users", "", ""},
	{200, "GET", users + "/{user}", globex + "/users/gus", "", ""},
	{200, "GET", "/why/{id}", "/why/gus?org=globex", "", ""},
	{200, "PATCH", users + "/{user}", globex + "/users/gus", `{"name":"Gus"}`, "user.update"},
}

var keySteps = []step{
	{201, "POST", keys, globex + "/keys", `{"id":"g1","user":"gus","scopes":["calls"],"networks":["10.0.0.0/8"],` +
		`"concurrency":2,"expires":"2099-01-01T00:00:00Z"}`, "key.create"},
	{400, "POST", keys, globex + "/keys", `{"user":"gus","scopes":["everything"]}`, ""},
	{200, "GET", keys, globex + "/keys?user=gus", "", ""},
	{200, "GET", keys + "/{key}", globex + "/keys/g1", "", ""},
	{200, "PATCH", keys + "/{key}", globex + "/keys/g1", `{"networks":null}`, "key.update"},
	{200, "POST", keys + "/{key}/rotate", globex + "/keys/g1/rotate", `{}`, "key.rotate"},
	{201, "POST", keys + "/{key}/children", globex + "/keys/g1/children", `{"amount":"$1","name":"nightly"}`, "run.create"},
	{400, "POST", keys + "/{key}/children", globex + "/keys/g1/children", `{"amount":"many"}`, ""},
	{200, "GET", org + "/runs", globex + "/runs", "", ""},
	{404, "GET", org + "/runs/{run}", globex + "/runs/none", "", ""},
	{404, "POST", org + "/runs/{run}/top-up", globex + "/runs/none/top-up", `{"add_amount":"$1"}`, ""},
	{404, "POST", org + "/runs/{run}/end", globex + "/runs/none/end", `{}`, ""},
}

var limitSteps = []step{
	{
		200, "PATCH", limits + "/{limit}", globex + "/limits/daily",
		`{"subject":"user","amount":"$5","window":"24h"}`, "limit.set",
	},
	{
		400, "PATCH", limits + "/{limit}", globex + "/limits/other",
		`{"subject":"user","amount":"5","window":"24h"}`, "",
	},
	{200, "GET", limits, globex + "/limits?user=gus", "", ""},
	{200, "GET", limits, globex + "/limits", "", ""},
	{200, "GET", limits + "/explain", globex + "/limits/explain?user=gus", "", ""},
	{
		201, "POST", overrides, globex + "/overrides",
		`{"limit":"daily","user":"gus","add":"$200","until":"{until}","reason":"launch"}`, "limit.override",
	},
	{
		400, "POST", overrides, globex + "/overrides",
		`{"limit":"daily","add":"200","until":"{until}","reason":"launch"}`, "",
	},
	{
		404, "POST", overrides, globex + "/overrides",
		`{"limit":"weekly","add":"$200","until":"{until}","reason":"launch"}`, "",
	},
	{200, "GET", overrides, globex + "/overrides", "", ""},
	{200, "GET", "/limit_requests", "/limit_requests?org=globex&status=pending", "", ""},
	{404, "GET", "/limit_requests/{request}", "/limit_requests/none", "", ""},
	{404, "POST", "/limit_requests/{request}/approve", "/limit_requests/none/approve", `{"amount":"$5"}`, ""},
	{400, "POST", "/limit_requests/{request}/deny", "/limit_requests/none/deny", `{}`, ""},
	{
		200, "POST", limits + "/{limit}/reset", globex + "/limits/daily/reset",
		`{"user":"gus","reason":"ours"}`, "limit.reset",
	},
	{200, "POST", limits + "/reset", globex + "/limits/reset", `{"dry_run":true,"reason":""}`, ""},
	{200, "POST", limits + "/reset", globex + "/limits/reset", `{"limit":"daily","reason":"wrong price"}`, "limits.reset"},
	{200, "POST", limits + "/reset", globex + "/limits/reset", `{"user":"gus","reason":"runaway"}`, "limits.reset"},
	{404, "POST", limits + "/reset", globex + "/limits/reset", `{"limit":"none","reason":"runaway"}`, ""},
	{400, "POST", limits + "/reset", globex + "/limits/reset", `{}`, ""},
	{404, "DELETE", org + "/stop", globex + "/stop", "", ""},
	{200, "PUT", org + "/stop", globex + "/stop", `{"reason":"runaway"}`, "spending.stop"},
	{404, "PUT", org + "/stop", "/orgs/none/stop", `{}`, ""},
	{200, "GET", "/stops", "/stops", "", ""},
	{204, "DELETE", org + "/stop", globex + "/stop", "", "spending.resume"},
	{404, "POST", brake + "/release", globex + "/brakes/wild/release", `{"subject":"user=gus"}`, ""},
	{404, "POST", brake + "/stop", globex + "/brakes/none/stop", `{"subject":"user=gus"}`, ""},
	{400, "POST", brake + "/stop", globex + "/brakes/wild/stop", `{"subject":"run=gus"}`, ""},
	{200, "POST", brake + "/stop", globex + "/brakes/wild/stop", `{"subject":"user=gus","for":"1h"}`, "brake.stop"},
	{200, "GET", "/brakes", "/brakes?org=globex", "", ""},
	{200, "POST", brake + "/release", globex + "/brakes/wild/release", `{"subject":"user=gus"}`, "brake.release"},
	{204, "POST", limits + "/reopen", globex + "/limits/reopen", `{"reason":"flushed"}`, "limits.reopen"},
	{400, "POST", "/limits/reopen", "/limits/reopen", `{}`, ""},
	{204, "POST", "/limits/reopen", "/limits/reopen", `{"reason":"flushed"}`, ""}, // its audit names no org
	{204, "DELETE", overrides + "/{override}", globex + "/overrides/{override}", "", "limit.override.end"},
	{204, "DELETE", limits + "/{limit}", globex + "/limits/daily", "", "limit.unset"},
}

const providerSecret = "sk-globex-0123456789"

var credentialSteps = []step{
	{
		409, "PUT", credentials + "/{provider}", globex + "/credentials/openai",
		`{"secret":"` + providerSecret + `"}`, "",
	},
	{
		404, "PUT", credentials + "/{provider}", globex + "/credentials/none",
		`{"secret":"` + providerSecret + `","clear":true}`, "",
	},
	{
		200, "PUT", credentials + "/{provider}", globex + "/credentials/openai",
		`{"secret":"` + providerSecret + `","clear":true}`, "credential.set",
	},
	{200, "GET", credentials, globex + "/credentials", "", ""},
	{204, "DELETE", credentials + "/{provider}", globex + "/credentials/openai", "", "credential.delete"},
}

var removalSteps = []step{
	{204, "DELETE", keys + "/{key}", globex + "/keys/g1", "", "key.delete"},
	{204, "DELETE", users + "/{user}", globex + "/users/gus", "", "user.delete"},
	{204, "DELETE", org, globex + "?reason=gone", "", "org.delete"},
	{200, "POST", org + "/purge", globex + "/purge", `{"dry_run":true}`, ""},
	{409, "POST", org + "/purge", "/orgs/acme/purge", `{}`, ""}, // it is in the file
}

var otherSteps = []step{
	{200, "GET", org + "/usage", "/orgs/acme/usage?by=day,user", "", ""},
	{200, "GET", "/admins", "/admins", "", ""},
	{403, "POST", "/admins", "/admins", `{"id":"x"}`, ""},
	{403, "PATCH", "/admins/{admin}", "/admins/ops", `{}`, ""},
	{403, "DELETE", "/admins/{admin}", "/admins/ops", "", ""},
	{200, "GET", "/audit", "/audit?org=globex&limit=1000", "", ""},
	{404, "POST", org + "/jobs/{job}/cancel", "/orgs/acme/jobs/job_x/cancel", `{}`, ""},
	{404, "POST", "/jobs/{job}/replay", "/jobs/job_x/replay", `{}`, ""},
	{400, "POST", users + "/{user}/batches/{batch}/cancel", "/orgs/acme/users/alice/batches/x/cancel", `{}`, ""}, // nor files
	{200, "POST", "/session", "/session", "", ""},                                                                // its audit names no org
	{200, "DELETE", "/session", "/session", "", ""},
	{200, "GET", "/self", "/self", "", ""},
	{400, "POST", "/config/reload", "/config/reload", "", ""}, // this process has no configuration file
	{200, "POST", "/config/reload/all", "/config/reload/all", "", ""},
	{200, "GET", "/openapi.json", "/openapi.json", "", ""},
}

// workSteps read money, jobs, batches and webhooks, all of which are empty.
var workSteps = []step{
	{200, "GET", "/caps", "/caps", "", ""},
	{200, "GET", org + "/ledger", "/orgs/acme/ledger", "", ""},
	{200, "GET", org + "/corrections", "/orgs/acme/corrections", "", ""},
	{200, "GET", org + "/focus", "/orgs/acme/focus?format=csv", "", ""},
	{400, "GET", org + "/focus", "/orgs/acme/focus?month=may", "", ""},
	{200, "GET", org + "/statement", "/orgs/acme/statement", "", ""},
	{400, "POST", org + "/corrections", "/orgs/acme/corrections", `{}`, ""},
	{200, "GET", org + "/unresolved", "/orgs/acme/unresolved", "", ""},
	{404, "POST", org + "/unresolved/{call}", "/orgs/acme/unresolved/01m7x425asv4hapb0hzey6k903", `{"action":"drop","reason":"x"}`, ""},
	{200, "GET", org + "/declaration", "/orgs/acme/declaration", "", ""},
	{200, "GET", org + "/records", "/orgs/acme/records", "", ""},
	{200, "POST", org + "/apply", "/orgs/acme/apply", `{"dry_run":true,"org":{"id":"acme"}}`, ""},
	{200, "GET", "/queue", "/queue", "", ""},
	{200, "GET", "/queue/dead", "/queue/dead", "", ""},
	{200, "POST", "/queue/{pool}/pause", "/queue/openai/pause", `{"reason":"the model is wrong"}`, ""},
	{404, "POST", "/queue/{pool}/pause", "/queue/none/pause", `{}`, ""},
	{200, "POST", "/queue/{pool}/resume", "/queue/openai/resume", `{"reason":"the provider says it is fixed"}`, ""},
	{404, "POST", "/queue/{pool}/resume", "/queue/none/resume", `{}`, ""},
	{404, "GET", "/why/{id}", "/why/nobody", "", ""},
	{200, "GET", "/refusals", "/refusals?org=acme&by=hour&from=2026-11-01T00:00:00Z&to=2026-11-02T00:00:00Z", "", ""},
	{400, "GET", "/refusals", "/refusals?by=minute", "", ""},
	{200, "GET", "/refusals/calls", "/refusals/calls?org=acme&limit=5", "", ""},
	{200, "GET", "/spend", "/spend?org=acme&by=user,label:run&filter=cost%3E0", "", ""},
	{400, "GET", "/spend", "/spend?by=nothing", "", ""},
	{200, "GET", org + "/calls", "/orgs/acme/calls?filter=status%3E=200&limit=2", "", ""},
	{400, "GET", org + "/calls", "/orgs/acme/calls?sort=name", "", ""},
	{200, "GET", "/jobs", "/jobs", "", ""},
	{404, "GET", "/jobs/{job}", "/jobs/job_x", "", ""},
	{400, "GET", "/batches", "/batches", "", ""}, // this process has no file store
	{400, "GET", "/batches/{batch}", "/batches/x", "", ""},
	{404, "GET", "/jobs/{job}/events", "/jobs/job_x/events", "", ""},
	{200, "GET", "/top", "/top?org=acme&user=acme/alice", "", ""},
	{200, "GET", "/calibration", "/calibration", "", ""},
	{200, "GET", org + "/export", "/orgs/acme/export", "", ""},
	{200, "GET", "/webhooks", "/webhooks", "", ""},
	{200, "GET", "/webhooks/dead", "/webhooks/dead", "", ""},
	{404, "POST", "/webhooks/dead/{letter}/replay", "/webhooks/dead/x/replay", `{}`, ""},
	{404, "POST", org + "/webhooks/{target}/enable", "/orgs/acme/webhooks/x/enable", `{}`, ""},
}
