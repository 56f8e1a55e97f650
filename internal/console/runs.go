package console

import (
	"net/url"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/pricing"
)

// runsView lists the budgets that keys of an org gave to runs.
type runsView struct {
	Org, Key string // Key: only those that it gave a budget to
	Lines    []runLine
	Problem  string
}

// runLine is a run as the API returns it.
type runLine struct {
	guard.RunView
	Expires time.Time
	Open    bool
	Calls   string // address of its calls
}

// runList shows the runs of an org with their budgets.
func (c *Console) runList(v *visit) error {
	view := runsView{Org: v.r.PathValue("org"), Key: v.r.URL.Query().Get("key")}
	if c.o.Tenants().Org(view.Org) == nil {
		return errNotFound
	}
	path := "/orgs/" + url.PathEscape(view.Org) + "/runs?" + url.Values{"key": {view.Key}}.Encode()
	all, wrong := list[guard.RunView](v, path, "The runs could not be read.")
	view.Problem = wrong
	for i := range all {
		r := &all[i]
		calls := spendPages{&c.o}.askedOf(v.r, "spend")
		calls.Org, calls.By, calls.Filter = view.Org, "model", ledger.FilterWord(ledger.Run, r.ID)
		for _, one := range ranges {
			calls.Range = one.Name
			if c.o.Now().Sub(time.Unix(r.Created, 0)) < one.Span {
				break
			}
		}
		view.Lines = append(view.Lines, runLine{
			RunView: *r, Expires: time.Unix(r.Expires, 0), Open: r.Ended == nil && r.Status != "expired", Calls: calls.Link(),
		})
	}
	return v.show("runs", "Runs", view)
}

// nanoOf returns an amount of the API in nano-USD.
func nanoOf(usd string) int64 {
	n, err := pricing.ParseUSD(usd)
	if err != nil {
		return 0
	}
	return int64(n)
}

// Titled returns the name of the run, otherwise its id.
func (r runLine) Titled() string {
	if r.Name != nil {
		return *r.Name
	}
	return r.ID
}
