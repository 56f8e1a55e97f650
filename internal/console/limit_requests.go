package console

import (
	"net/http"
	"net/url"
	"time"

	"github.com/llmguard/llmguard/internal/admin"
)

// requestsView lists callers' requests for more of a limit.
type requestsView struct {
	ID      string // if set, only this one: the link in a message
	Lines   []admin.LimitRequest
	Problem string
}

// limitRequests lists the requests: all that are pending, then the newest others. Opening the page decides nothing.
func (c *Console) limitRequests(v *visit) error {
	view := requestsView{ID: v.r.URL.Query().Get("id")}
	var list struct{ Data []admin.LimitRequest }
	if status, text := v.ask(v.r.Context(), http.MethodGet, "/limit_requests", nil, &list); status != http.StatusOK {
		view.Problem = problem(text, "The requests could not be read.")
	}
	for _, pending := range []bool{true, false} {
		for _, r := range list.Data {
			if (r.Status == "pending") == pending && (view.ID == "" || view.ID == r.ID) &&
				(pending || len(view.Lines) < perPage) {
				view.Lines = append(view.Lines, r)
			}
		}
	}
	return v.show("requests", "Limit requests", view)
}

// untilFormat is how a form shows and reads the end of an approval.
const untilFormat = "2006-01-02 15:04"

func formTime(t time.Time) string { return t.UTC().Format(untilFormat) }

func (v *visit) approveRequest() (done, error) {
	body := map[string]any{"amount": v.field("amount")}
	until, err := time.Parse(untilFormat, v.field("until"))
	if err != nil {
		return done{}, &refusal{http.StatusBadRequest, "Until must be a time in UTC such as 2026-12-01 18:00."}
	}
	body["until"] = until
	if why := v.field("reason"); why != "" {
		body["reason"] = why
	}
	var now admin.LimitRequest
	err = v.change(http.MethodPost, "/limit_requests/"+url.PathEscape(v.field("request"))+"/approve", body, &now)
	return done{Text: "Approved: " + now.ApprovedAmount + " more of limit " + now.Limit + " for " + now.User + "."}, err
}

func (v *visit) denyRequest() (done, error) {
	var now admin.LimitRequest
	path := "/limit_requests/" + url.PathEscape(v.field("request")) + "/deny"
	err := v.change(http.MethodPost, path, map[string]any{"reason": v.field("reason")}, &now)
	return done{Text: "The request of " + now.User + " is " + now.Status + "."}, err
}
