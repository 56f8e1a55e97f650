package console

import (
	"context"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

type callView struct {
	ledger.Entry
	Corrections []ledger.Entry // entries after the first one
	Began       time.Time      // when the hold was made; zero: unknown
	Limits      []callLimit
}

// costPart is the cost of one kind of use.
type costPart struct {
	Name string
	Cost pricing.Nano
}

// Parts returns the nonzero parts of the cost; they add up to all of it.
func (v *callView) Parts() []costPart {
	c := v.Costs
	parts := []costPart{
		{"input", c.Input},
		{"cached input", c.CachedInput},
		{"cache write", c.CacheWrite},
		{"output", c.Output},
		{"fees", c.Fees},
	}
	return slices.DeleteFunc(parts, func(p costPart) bool { return p.Cost == 0 })
}

// callLimit is a limit that counts the call, in its present form.
type callLimit struct {
	budget.Limit
	Before int64 // use of its window, from the ledger, when the call was held
	Known  bool  // Before could be computed
	Held   bool  // the limit is in shadow mode and would have refused the call

	start time.Time // start of the window
	tail  time.Time // entries are added up from here on, daily sums before
}

// callPage shows one call of the ledger.
type callPage struct{ o *Options }

// show shows one call: its ledger entries, and the state of its limits at the time.
func (c *callPage) show(v *visit) error {
	o, id := c.o.Tenants().Org(v.r.PathValue("org")), v.r.PathValue("call")
	if o == nil {
		return errNotFound
	}
	view, err := c.findCall(v.r.Context(), o.ID, id)
	if err != nil {
		return err
	}
	if view == nil {
		return errNotFound
	}
	if err := c.limitsThen(v.r.Context(), view); err != nil {
		return err
	}
	return v.show("call", "Call", view)
}

// findCall reads the ledger from the time in the call's id; it returns nil if the call is not
// there.
func (c *callPage) findCall(ctx context.Context, org, id string) (*callView, error) {
	made, ok := wire.CallTime(id)
	if !ok {
		return nil, nil
	}
	entries, _, err := ledger.EntriesOf(ctx, c.o.Budget.Ledger.Entries, org, id, made)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	view := &callView{Entry: entries[0], Corrections: entries[1:]}
	if view.HeldUS > 0 {
		view.Began = time.UnixMicro(view.HeldUS)
	}
	return view, nil
}
