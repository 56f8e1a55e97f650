package console

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
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
	Cut     bool // not all orgs were searched
}

// calls asks the API for entries. Those of all orgs are found among the orgs that spend most.
func (v *visit) calls(a asked, limit int, before string) callList {
	out := callList{asked: a, First: before == ""}
	orgs := []string{a.Org}
	if a.Org == "" {
		orgs, out.Cut = v.spenders(v.r.Context(), shownOrgs)
	}
	for _, org := range orgs {
		of := a
		of.Org = org
		var page admin.CallPage
		status, text := v.ask(v.r.Context(), http.MethodGet, of.callsPath(strconv.Itoa(limit), before), nil, &page)
		if status != http.StatusOK {
			out.Bad = problem(text, "The calls could not be read.")
			return out
		}
		out.Entries = append(out.Entries, page.Data...)
		if page.Since != nil && (out.Since == nil || page.Since.After(*out.Since)) {
			out.Since = page.Since
		}
		if page.Next != "" && a.Org != "" {
			out.More = a.Link("path", "calls", "before", page.Next)
		}
	}
	if a.Org == "" {
		slices.SortStableFunc(out.Entries, func(x, y ledger.Entry) int {
			if a.Sort == usualSort {
				return cmp.Compare(y.Cost, x.Cost)
			}
			return y.At.Compare(x.At)
		})
		out.Entries = out.Entries[:min(limit, len(out.Entries))]
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
	view.Calls = v.calls(view.asked, perPage, v.r.URL.Query().Get("before"))
	return v.show("calls", "Calls", view)
}
