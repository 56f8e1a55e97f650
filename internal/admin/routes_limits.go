package admin

import (
	"net/http"
)

func (s *Server) limitRoutes() []Operation {
	return []Operation{
		{
			Name: "listLimits", Method: http.MethodGet, Path: "/orgs/{org}/limits",
			Summary: "List an org's limits and their usage; with user or key, the limits that apply to it. Org all: the " +
				"limits for every org",
			Query: []parameter{
				{name: "user", text: "Limits and usage of this user", help: "show the limits of this user, with the user's usage"},
				{name: "key", text: "Limits and usage of this key", help: "show the limits of this key, with its usage"},
				{name: "group", text: "Limits and usage of this group", help: "show the limits of this group, with its usage"},
				{name: "plan", text: "Limits of this plan", help: "show the limits of this plan"},
				{
					name: "ip", text: "Usage of this address, for limits per address",
					help: "client address, for limits per address",
				},
				{
					name: "label", text: "Usage of this value of a label, as name=value, for limits per label; may be repeated",
					kind: Pairs, help: "value of a label, as name=value, for limits per label (repeat for several)",
				},
			}, Answer: page[Limit]{}, serve: s.limits.listLimits,
			Commands: []Command{{
				Use: "limits get [LIMIT]", Short: "Show limits, their usage and overrides",
				Example: "limits get --org acme\nlimits get daily --org acme --user alice",
			}},
		},
		{
			Name: "explainLimits", Method: http.MethodGet, Path: "/orgs/{org}/limits/explain",
			Summary: "Explain which limits count a call of a user or key, and why others do not",
			Query:   explainQuery(), Answer: Explanation{}, serve: s.limits.explainLimits,
			Commands: []Command{{
				Use: "limits explain", All: true, AnyOf: []string{"user", "key"},
				Short: "Show which limits count a call, where each is set, and why others do not",
				Long: "A limit replaces the limit of the same name in an earlier place: defaults, org, group, plan, user. The\n" +
					"limit that binds first comes first. Without --model, limits for certain models do not count the call.",
				Example: "limits explain --user alice --model gpt-5\n" +
					"limits explain --org acme --key alice-1 --model gpt-5 -o json",
				Help: map[string]string{"org": "the org (default: the only one that has the user or key)"},
			}},
		},
		{
			Name: "setLimit", Method: http.MethodPatch, Audit: "limit.set", Path: "/orgs/{org}/limits/{limit}",
			Summary: "Create or change a limit; its usage is kept. With user, for that user only. Org all: a limit for every " +
				"org", Writes: true, Query: ownerQuery(), Body: limitPatch{},
			Answer: Limit{}, serve: s.limits.setLimit,
			NoPage: "a limit has many shapes: the CLI and apply set them",
			Commands: []Command{{
				Use: "limits set LIMIT", Short: "Create or change a limit (its usage is kept)",
				Long: "--org all sets a limit for every org in one call, including orgs created later. It overrides `defaults` in the\n" +
					"configuration file. Each org has its own counter, and an org's own limit of the same name takes precedence.\n\n" +
					"--group research sets a limit of a group: its users share the amount, or each has it with --subject user. --plan free\n" +
					"sets a limit of a plan, for all who have it, in this org or with --org all in every org. Groups and plans begin to\n" +
					"exist with their first limit.\n\n" +
					"--user alice makes a limit of alice's own. --subject user gives each user a counter in a limit of the org; with\n" +
					"--only alice only she has it. A limit has one shape: --window, --calendar, or --capacity and --refill.",
				Example: "limits set daily --org acme --amount '$50'\n" +
					"limits set daily --org acme --user alice --amount '$80'\n" +
					"limits set user-day --org acme --subject user --amount '$20' --window 1d\n" +
					"limits set team-month --org acme --group research --amount '$500' --calendar month\n" +
					"limits set daily --org all --plan free --amount '$1' --window 1d\n" +
					"limits set team --org acme --metric cost --capacity '$200' --refill '$50/1h'\n" +
					"limits set daily --org acme --mode shadow\n" +
					"limits set hour --org all --amount '$20' --window 1h",
				Help: map[string]string{
					"user":  "set this user's own limit, which replaces the org's of the same name (implies --subject user)",
					"group": "set a limit of this group (default: --subject group)", "plan": "set a limit of this plan",
				},
			}},
		},
		{
			Name: "unsetLimit", Method: http.MethodDelete, Audit: "limit.unset", Path: "/orgs/{org}/limits/{limit}",
			Summary: "Drop runtime changes to a limit, or delete a runtime limit", Writes: true,
			Query: ownerQuery(), serve: s.limits.unsetLimit,
			NoPage: "as setLimit",
			Commands: []Command{{
				Use: "limits unset LIMIT", Example: "limits unset daily --org acme --user alice --yes",
				Short: "Drop runtime changes to a limit (file value applies again), or delete a runtime limit",
				Sure:  "this permanently removes limit {limit}. Confirm with --yes, or disable it instead",
				Done:  "removed runtime changes to limit {limit} of org {org}",
			}},
		},
		{
			Name: "resetLimit", Method: http.MethodPost, Audit: "limit.reset", Path: "/orgs/{org}/limits/{limit}/reset",
			Summary: "Reset a limit's usage to zero; open calls still count, and the ledger is kept", Writes: true,
			Body: limitReset{}, Answer: Limit{}, serve: s.limits.resetLimit,
			Commands: []Command{{
				Use: "limits reset [LIMIT]", Short: "Reset a limit's usage to zero (ledger and in-flight calls are kept)",
				Long: "A limit has one counter per org, user, key or address. LIMIT resets the counter of the subject that you name, immediately.\n" +
					"--all resets all counters of LIMIT; without LIMIT the counters of all limits, and with --user or --key the ones that\n" +
					"count this user or key. --all first shows what it will reset, and asks for confirmation unless you\n" +
					"use --yes. What open calls hold stays counted.",
				Example: "limits reset daily --org acme --user alice --reason 'bug in our script'\n" +
					"limits reset --org acme --all --reason 'runaway agent' --yes\n" +
					"limits reset --org acme --user alice --all --reason 'runaway agent' --yes\n" +
					"limits reset daily --org acme --all --reason 'wrong price' --yes",
				Must: []string{"reason"},
			}},
			Pages: []Page{{
				Title: "Reset a limit's usage", Text: "Resets the usage of %s to zero. The ledger and in-flight calls are kept.",
				Danger: true, Must: true, Done: "The usage of {limit} was reset.",
			}},
		},
		{
			Name: "resetLimits", Method: http.MethodPost, Audit: "limits.reset", Path: "/orgs/{org}/limits/reset",
			Summary: "Reset the usage of all limits of an org to zero, or of one limit for all that it counts, or of all " +
				"limits that count one user or key; with dry_run, only show the usage", Writes: true, Body: limitsReset{},
			Answer: ResetPlan{}, serve: s.resets.resetLimits,
			NoPage:   "it shows a plan first: the CLI",
			Commands: []Command{{Use: "limits reset", Own: true}},
		},
		{
			Name: "reopenLimits", Method: http.MethodPost, Audit: "limits.reopen", Path: "/orgs/{org}/limits/reopen",
			Summary: "Reopen an org's limits that are closed because Redis lost its data; they count from zero",
			Writes:  true, Body: limitsReopen{}, serve: s.limits.reopenLimits,
			NoPage: "after a loss of data, from the runbook: the CLI",
			Commands: []Command{{
				Use: "limits reopen", Short: "Reopen limits that closed because Redis lost its data", All: true,
				Long: "If Redis loses its data, the usage is unknown, so each limit closes for the length of its window. Reopened limits count\n" +
					"from zero. --all reopens the limits of every org and the spend caps.",
				Example: "limits reopen --org acme --reason 'Redis was flushed by mistake'\n" +
					"limits reopen --all --reason 'new Redis'",
				Must: []string{"reason"},
			}},
		},
		{
			Name: "reopenAllLimits", Method: http.MethodPost, Audit: "limits.reopen", Path: "/limits/reopen",
			Summary: "Reopen all limits and spend caps that are closed because Redis lost its data; they count from zero",
			Writes:  true, Body: limitsReopen{}, serve: s.limits.reopenLimits,
			NoPage:   "after a loss of data, from the runbook: the CLI",
			Commands: []Command{{Use: "limits reopen", Own: true}},
		},
		{
			Name: "listOverrides", Method: http.MethodGet, Path: "/orgs/{org}/overrides",
			Summary: "List overrides of limits, including those that ended in the last week", Answer: page[Override]{},
			serve: s.known(s.overrides.listOverrides),
			Commands: []Command{{
				Use: "limits overrides", Short: "List overrides, including those that ended in the last week",
				None:    "no overrides",
				Example: "limits overrides --org acme",
			}},
		},
		{
			Name: "createOverride", Method: http.MethodPost, Audit: "limit.override", Path: "/orgs/{org}/overrides",
			Summary: "Temporarily change a limit's amount; the override expires automatically",
			Writes:  true, Body: newOverride{},
			Answer: Override{}, Status: 201, serve: s.known(s.overrides.createOverride),
			Pages: []Page{{
				Name: "raise-limit", Title: "Temporarily change a limit", Must: true,
				Text: "Changes the amount of limit %s for a time. It then returns to the previous amount. The usage is kept.",
				Ask: []Ask{
					{Input: "add", Label: "Add", Hint: "such as $200 or -$5; a number for limits that do not count cost"},
					{Input: "until", Label: "For", Value: "24 hours", Choices: []string{"1 hour", "8 hours", "24 hours", "7 days"}},
				},
				Done: "{limit}: {add} until {until}.",
			}},
			Commands: []Command{{
				Use: "limits override", Short: "Temporarily change a limit",
				Long: "An override keeps the usage of the limit. Without --user and --key it applies to everyone that the limit counts. --until\n" +
					"accepts tonight (the next midnight on this machine), tomorrow, 18:00, 4h, 7d, 2026-12-01 or 2026-12-01T18:00:00+01:00.",
				Example: "limits override --org acme --user alice --limit daily --add '$200' --until tonight --reason 'launch day'\n" +
					"limits override --org acme --limit daily --amount '$10' --until 18:00 --reason 'runaway job'",
				OneOf: []string{"add", "amount"}, Must: []string{"reason"},
				Done: "{limit}: {add} until {until}\nend it early with: llmguard limits end {id} --org {org}",
			}},
		},
		{
			Name: "deleteOverride", Method: http.MethodDelete, Audit: "limit.override.end",
			Path:    "/orgs/{org}/overrides/{override}",
			Summary: "End an override now", Writes: true, Query: []parameter{reasonParameter},
			serve: s.known(s.overrides.deleteOverride),
			Pages: []Page{{
				Name: "end-override", Title: "End a temporary change",
				Text: "Ends change %s now. The limit returns to its previous amount.", Done: "The temporary change has ended.",
			}},
			Commands: []Command{{
				Use: "limits end OVERRIDE", Short: "End an override now", Done: "override {override} has ended",
				Example: "limits overrides --org acme -o json\nlimits end 01m84kynm3jp5p1nr8mr0yampe --org acme",
			}},
		},
	}
}

func (s *Server) requestRoutes() []Operation {
	const one = "/limit_requests/{request}"
	return []Operation{
		{
			Name: "listLimitRequests", Method: http.MethodGet, Path: "/limit_requests",
			Summary: "List callers' requests for more of a limit, newest first", Query: limitRequestParameters,
			Answer: page[LimitRequest]{}, serve: s.requests.listLimitRequests,
			Commands: []Command{{
				Use: "limits requests list", Short: "List requests, newest first; until a week after the end of what was requested",
				Example: "limits requests list --status pending",
			}},
		},
		{
			Name: "getLimitRequest", Method: http.MethodGet, Path: one, Summary: "Show a limit request",
			Answer: LimitRequest{}, serve: s.requests.getLimitRequest,
			Commands: []Command{{
				Use: "limits requests get REQUEST", Short: "Show a request, and who decided it",
				Example: "limits requests get lreq_01m84kynm3jp5p1nr8mr0yampe",
			}},
		},
		{
			Name: "approveLimitRequest", Method: http.MethodPost, Audit: "limit_request.approve", Path: one + "/approve",
			Summary: "Approve a limit request: create an override with what was requested, or with another amount or end. " +
				"Repeating it changes nothing", Writes: true, Body: approval{}, Answer: LimitRequest{},
			serve: s.requests.approve,
			Pages: []Page{{
				Name: "approve-request", Title: "Approve a limit request",
				Text: "Raises the limit of request %s until the end below. It then returns to the previous amount.",
				Ask: []Ask{
					{Input: "amount", Label: "Add", Hint: "such as $20"},
					{Input: "until", Label: "Until", Hint: "UTC, such as 2026-12-01 18:00"},
				},
				Done: "Approved: {approved_amount} more of limit {limit} for {user}.",
			}},
			Commands: []Command{{
				Use: "limits requests approve REQUEST", Short: "Approve a request: raise the limit until the requested end",
				Long: "The next call of the caller continues immediately, and waiting jobs continue. Approving again changes nothing.\n" +
					"--until accepts the same as limits override.",
				Example: "limits requests approve lreq_01m84kynm3jp5p1nr8mr0yampe\n" +
					"limits requests approve lreq_01m84kynm3jp5p1nr8mr0yampe --amount '$10' --until tonight --reason 'half is enough'",
				Done: "{limit}: {approved_amount} more for {user} until {approved_until}\n" +
					"end it early with: llmguard limits end {override} --org {org}",
			}},
		},
		{
			Name: "denyLimitRequest", Method: http.MethodPost, Audit: "limit_request.deny", Path: one + "/deny",
			Summary: "Deny a limit request; the caller sees the reason", Writes: true, Body: denial{},
			Answer: LimitRequest{}, serve: s.requests.deny,
			Pages: []Page{{
				Name: "deny-request", Title: "Deny a limit request", Text: "Denies request %s. The caller sees the reason.",
				Danger: true, Must: true, Done: "The request of {user} is {status}.",
			}},
			Commands: []Command{{
				Use: "limits requests deny REQUEST", Short: "Deny a request; the caller sees the reason",
				Example: "limits requests deny lreq_01m84kynm3jp5p1nr8mr0yampe --reason 'use the batch API'",
				Must:    []string{"reason"}, Done: "request {id} of {user} is {status}",
			}},
		},
	}
}
