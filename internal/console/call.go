package console

import (
	"context"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

type callView struct {
	budget.Entry
	Corrections []budget.Entry // of it, after the first entry
	Began       time.Time      // when it was held; zero: not known
	Limits      []callLimit
}

// costPart is what one kind of use cost.
type costPart struct {
	Name string
	Cost pricing.Nano
}

// Parts are the parts of the cost that are not zero; together they are all of it.
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

// callLimit is a limit that counts the call, as it is in force now.
type callLimit struct {
	budget.Limit
	Before int64 // what the ledger has of its window when the call was held
	Known  bool  // that this could be added up
	Held   bool  // in shadow mode, and the call did not fit

	start time.Time // of the window
	tail  time.Time // its entries from then on are added up, before that the daily sums
}

// callPage shows one call of the ledger.
type callPage struct{ o *Options }

// show shows one call: what the ledger has of it, and where its limits stood then.
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

// findCall reads the ledger from when the call's id was made; nil: it is not there.
func (c *callPage) findCall(ctx context.Context, org, id string) (*callView, error) {
	made, ok := wire.CallTime(id)
	if !ok {
		return nil, nil
	}
	entries, err := budget.EntriesOf(ctx, c.o.Budget.Ledger.Entries, org, id, made)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	view := &callView{Entry: entries[0], Corrections: entries[1:]}
	if view.HeldUS > 0 {
		view.Began = time.UnixMicro(view.HeldUS)
	}
	return view, nil
}
