package admin

import (
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// CallPage is a page of ledger entries.
type CallPage struct {
	Object string         `json:"object"` // always "list"
	Data   []ledger.Entry `json:"data"`
	// Next is where to continue, as the parameter before; empty if nothing is left.
	Next string `json:"next"`
	// Since is set if entries before it were not searched yet, because there are too many. Continue
	// at Next.
	Since *time.Time `json:"since"`
}

// searchCalls finds ledger entries that meet a filter.
func (h *usageHandler) searchCalls(c *call) (any, error) {
	org := c.r.PathValue("org")
	q := ledger.CallQuery{Org: org, Before: c.r.URL.Query().Get("before")}
	var err error
	q.From, q.To, err = c.period()
	if err != nil {
		return nil, err
	}
	q.Filter, err = h.filter(c)
	if err != nil {
		return nil, err
	}
	q.Limit, err = c.number("limit", 50, maxSpendGroups)
	if err != nil {
		return nil, err
	}
	switch sort := c.r.URL.Query().Get("sort"); sort {
	case "", "newest":
	case "cost":
		q.ByCost = true
	default:
		return nil, invalid("sort", "sort must be newest or cost")
	}
	if q.Before != "" && (q.ByCost || !ledger.ValidLedgerID(q.Before)) {
		return nil, invalid("before", "before must be next of a page that is not sorted by cost")
	}
	page, err := scan(c.r.Context(), h, func() (*ledger.CallPage, error) {
		return ledger.Search(c.r.Context(), h.opts.Budget.Ledger, q)
	})
	if err != nil {
		return nil, err
	}
	out := CallPage{Object: "list", Data: page.Entries, Next: page.Next}
	if out.Data == nil {
		out.Data = []ledger.Entry{}
	}
	if !page.Since.IsZero() {
		out.Since = &page.Since
	}
	return out, nil
}
