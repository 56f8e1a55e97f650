package console

import (
	"net/http"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/admin"
)

// callList is a table of ledger entries.
type callList struct {
	asked
	Entries []ledger.Entry
	More    string     // address of the next page
	Since   *time.Time // entries before it were not searched yet
	Bad     string
	First   bool // it begins with the newest
}

// calls asks the API for entries.
func (v *visit) calls(a asked, limit, before string) callList {
	out := callList{asked: a, First: before == ""}
	var page admin.CallPage
	status, text := v.ask(v.r.Context(), http.MethodGet, a.callsPath(limit, before), nil, &page)
	if status != http.StatusOK {
		out.Bad = problem(text, "The calls could not be read.")
		return out
	}
	out.Entries, out.Since = page.Data, page.Since
	if page.Next != "" {
		out.More = a.Link("path", "calls", "before", page.Next)
	}
	return out
}

type callsView struct {
	asked
	Calls callList
}

// searchCalls lists the calls that meet a filter.
func (c spendPages) searchCalls(v *visit) error {
	view := callsView{asked: c.askedOf(v.r, "calls")}
	if view.Org == "" && len(view.Orgs) > 0 {
		view.Org = view.Orgs[0]
	}
	view.Calls = v.calls(view.asked, "50", v.r.URL.Query().Get("before"))
	return v.show("calls", "Calls", view)
}
