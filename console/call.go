package console

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/wire"
)

// What is read of the ledger for one call: so many entries after its id was made, and as
// many before it was admitted.
const (
	callEntries = 20_000
	callAfter   = 26 * time.Hour // a job waits a day, and then runs
	callBefore  = 24 * time.Hour
)

type callView struct {
	budget.Entry
	Corrections []budget.Entry // of it, after the first entry
	Began       time.Time      // when it was held; zero: not known
	Limits      []callLimit
}

// callLimit is a limit that counts the call, as it is in force now.
type callLimit struct {
	budget.Limit
	Before int64 // what the ledger has of its window when the call was held
	Known  bool  // that this could be added up
	Held   bool  // in shadow mode, and the call did not fit
}

// call shows one call: what the ledger has of it, and where its limits stood then.
func (c *Console) call(v *visit) error {
	o, id := c.findOrg(v.r.PathValue("org")), v.r.PathValue("call")
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
func (c *Console) findCall(ctx context.Context, org, id string) (*callView, error) {
	made, ok := wire.CallTime(id)
	if !ok {
		return nil, nil
	}
	var view *callView
	read := 0
	err := c.o.Budget.Entries(ctx, org, made.Add(-time.Minute), made.Add(callAfter), func(e budget.Entry) error {
		if read++; read > callEntries {
			return errEnough
		}
		switch {
		case e.ID != id:
		case view == nil:
			view = &callView{Entry: e}
		default:
			view.Corrections = append(view.Corrections, e)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	if view != nil && view.HeldUS > 0 {
		view.Began = time.UnixMicro(view.HeldUS)
	}
	return view, nil
}

// limitsThen adds up, from the ledger, what the windows of the call's limits had in them
// when it was held.
func (c *Console) limitsThen(ctx context.Context, view *callView) error {
	policy := c.o.Policy().Orgs[view.Org]
	if policy == nil {
		return nil
	}
	for _, l := range policy.LimitsFor(view.User, view.Key) {
		if l.Mode == budget.Off || l.Only != "" && l.Only != subjectOf(l.Subject, view.Call) {
			continue
		}
		view.Limits = append(view.Limits, callLimit{
			Limit: l, Known: summable(l) && !view.Began.IsZero(),
			Held: slices.ContainsFunc(view.Shadow, func(s budget.Shadowed) bool { return s.Cap == "" && s.Limit == l.ID }),
		})
	}
	if !slices.ContainsFunc(view.Limits, func(l callLimit) bool { return l.Known }) {
		return nil
	}
	read := 0
	err := c.o.Budget.Recent(ctx, view.Org, view.Began.Add(-callBefore), view.Began, func(e budget.Entry) error {
		if read++; read > callEntries {
			return errEnough
		}
		for i := range view.Limits {
			view.Limits[i].count(&e, view)
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		for i := range view.Limits {
			view.Limits[i].Known = false
		}
		return nil
	}
	return err
}

// summable reports whether entries of the ledger tell what a limit's window had in it.
func summable(l budget.Limit) bool {
	window := l.Shape.Kind == budget.Window || l.Shape.Kind == budget.ExactWindow
	return window && l.Shape.Window <= callBefore && l.Metric != budget.Concurrency && len(l.Models)+len(l.Endpoints) == 0
}

func (l *callLimit) count(e *budget.Entry, view *callView) {
	age := view.Began.Sub(e.At)
	if !l.Known || e.ID == view.ID || age < 0 || age > l.Shape.Window || subjectOf(l.Subject, e.Call) != subjectOf(l.Subject, view.Call) {
		return
	}
	switch l.Metric {
	case budget.Cost:
		l.Before += int64(e.Cost)
	case budget.Tokens:
		l.Before += e.Usage.Input + e.Usage.Output
	default:
		l.Before++
	}
}

// subjectOf is whom of a call a limit counts.
func subjectOf(s budget.Subject, c budget.Call) string {
	switch s {
	case budget.User:
		return c.User
	case budget.Key:
		return c.Key
	case budget.IP:
		return c.IP
	}
	return ""
}
