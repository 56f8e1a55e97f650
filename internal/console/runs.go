package console

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/pricing"
)

// runsView lists the budgets that keys gave to runs.
type runsView struct {
	Org, Key string // Org: empty: all. Key: only those that it gave a budget to
	Lines    []runLine
	Cut      bool // there are more orgs
	Problem  string
}

// runLine is a run as the API returns it.
type runLine struct {
	guard.RunView
	Depth   int // in the tree of runs, at most mostDepth
	Expires time.Time
	Open    bool
	Calls   string // address of its calls
}

// runList shows the runs of an org, or of the orgs that spend most, as a tree.
func (c *Console) runList(v *visit) error {
	view := runsView{Org: v.r.PathValue("org"), Key: v.r.URL.Query().Get("key")}
	orgs := []string{view.Org}
	if view.Org == "" {
		orgs, view.Cut = c.spenders(v.r.Context(), shownOrgs)
	} else if c.o.Tenants().Org(view.Org) == nil {
		return errNotFound
	}
	var all []guard.RunView
	for _, org := range orgs {
		path := "/orgs/" + url.PathEscape(org) + "/runs?" + url.Values{"key": {view.Key}}.Encode()
		list, wrong := list[guard.RunView](v, path, "The runs could not be read.")
		all, view.Problem = append(all, list...), cmp.Or(view.Problem, wrong)
	}
	slices.SortStableFunc(all, func(a, b guard.RunView) int { return cmp.Compare(burned(&b), burned(&a)) })
	t := runTree{visit: v, within: map[string][]*guard.RunView{}}
	known := map[string]bool{}
	for i := range all {
		known[all[i].ID] = true
	}
	for i := range all {
		parent := ""
		if p := all[i].Parent; p != nil && known[*p] {
			parent = *p
		}
		t.within[parent] = append(t.within[parent], &all[i])
	}
	t.add("", 0)
	view.Lines = t.lines
	return v.show("runs", "Runs", view)
}

// mostDepth is the last level that the style sheet indents.
const mostDepth = 4

func burned(r *guard.RunView) int64 { return nanoOf(r.Spent) + nanoOf(r.Held) }

// runTree lists runs below the run that gave them their budget, those with the highest cost first.
type runTree struct {
	*visit
	within map[string][]*guard.RunView // by the id of the parent; "" has none
	lines  []runLine
}

func (t *runTree) add(parent string, depth int) {
	for _, r := range t.within[parent] {
		t.lines = append(t.lines, runLine{
			RunView: *r, Depth: min(depth, mostDepth), Expires: time.Unix(r.Expires, 0),
			Open: r.Ended == nil && r.Status != "expired", Calls: t.callsOf(r),
		})
		t.add(r.ID, depth+1)
	}
}

// callsOf returns the address of a run's spending, in the shortest period since it began.
func (t *runTree) callsOf(r *guard.RunView) string {
	calls := spendPages{&t.o}.askedOf(t.r, "spend")
	calls.Org, calls.By, calls.Filter = r.Org, "model", ledger.FilterWord(ledger.Run, r.ID)
	for _, one := range ranges {
		calls.Range = one.Name
		if t.o.Now().Sub(time.Unix(r.Created, 0)) < one.Span {
			break
		}
	}
	return calls.Link()
}

// nanoOf returns an amount of the API in nano-USD.
func nanoOf(usd string) int64 {
	n, err := pricing.ParseUSD(usd)
	if err != nil {
		return 0
	}
	return int64(n)
}
