package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/admin"
)

// requestsView lists callers' requests for more of a limit.
type requestsView struct {
	ID      string // if set, only this one: the link in a message
	Lines   []admin.LimitRequest
	Problem string
}

// limitRequests lists the requests: all that are pending, the largest first, then the newest others. Opening the page
// decides nothing.
func (c *Console) limitRequests(v *visit) error {
	view := requestsView{ID: v.r.URL.Query().Get("id")}
	all, wrong := list[admin.LimitRequest](v, "/limit_requests", "The requests could not be read.")
	view.Problem = wrong
	view.Lines = slices.DeleteFunc(all, func(r admin.LimitRequest) bool { return view.ID != "" && view.ID != r.ID })
	needed := func(r admin.LimitRequest) int64 {
		if r.Status != "pending" {
			return -1
		}
		return nanoOf(r.Amount)
	}
	slices.SortStableFunc(view.Lines, func(a, b admin.LimitRequest) int { return cmp.Compare(needed(b), needed(a)) })
	view.Lines = view.Lines[:min(len(view.Lines), len(c.o.pendingRequests())+perPage)]
	return v.show("requests", "Limit requests", view)
}

// untilFormat is how a form shows and reads the end of an approval.
const untilFormat = "2006-01-02 15:04"

func formTime(t time.Time) string { return t.UTC().Format(untilFormat) }
