package admin

import "net/http"

// requestRoutes returns the routes for callers' requests for more of a limit.
func (s *Server) requestRoutes() []route {
	const one = "/limit_requests/{request}"
	return []route{
		{
			name: "listLimitRequests", method: http.MethodGet, path: "/limit_requests",
			summary: "List callers' requests for more of a limit, newest first", query: limitRequestParameters,
			answer: page[LimitRequest]{}, serve: s.requests.listLimitRequests,
		},
		{
			name: "getLimitRequest", method: http.MethodGet, path: one, summary: "Show a limit request",
			answer: LimitRequest{}, serve: s.requests.getLimitRequest,
		},
		{
			name: "approveLimitRequest", method: http.MethodPost, path: one + "/approve",
			summary: "Approve a limit request: create an override with what was requested, or with another amount or end. " +
				"Repeating it changes nothing", writes: true, body: approval{}, answer: LimitRequest{},
			serve: s.requests.approve,
		},
		{
			name: "denyLimitRequest", method: http.MethodPost, path: one + "/deny",
			summary: "Deny a limit request; the caller sees the reason", writes: true, body: denial{},
			answer: LimitRequest{}, serve: s.requests.deny,
		},
	}
}
