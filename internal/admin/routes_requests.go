package admin

import "net/http"

// requestRoutes returns the routes for callers' requests for more of a limit.
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
