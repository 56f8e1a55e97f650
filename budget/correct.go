package budget

import (
	"context"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Adjust makes an adjustment in the ledger and in the current use of limits, of which only cost limits are corrected.
// A credit is taken from what leaves a window first. What the runs of the call have spent is corrected in any case, as
// long as they can be read: it is what the ledger has for them. Its errors are those of the ledger.
func (s *Store) Adjust(ctx context.Context, a ledger.Adjustment, limits []Limit) (ledger.Adjusted, error) {
	if a.Amount == 0 || a.Amount < -MaxAmount || a.Amount > MaxAmount {
		return ledger.Adjusted{}, fmt.Errorf("budget: an adjustment of %s is not possible", a.Amount)
	}
	return s.Ledger.Adjust(ctx, a, s.useOf(a.Call, limits))
}

// Resolve decides a charge that Ledger.Reconcile returned. If it is charged, so are the limits, as by Adjust.
func (s *Store) Resolve(
	ctx context.Context, e ledger.Entry, r ledger.Resolution, limits []Limit,
) (ledger.Adjusted, error) {
	return s.Ledger.Resolve(ctx, e, r, s.useOf(e.Call, limits))
}

// useOf finds what the limits and the runs of a call counted for it.
func (s *Store) useOf(c ledger.Call, limits []Limit) ledger.FindUse {
	return func(ctx context.Context) (ledger.LimitUse, error) { return s.findUse(ctx, c, limits) }
}

func (s *Store) findUse(ctx context.Context, c ledger.Call, limits []Limit) (out ledger.LimitUse, err error) {
	runs, err := findRuns(ctx, s.rdb, c.Org, c.Run.IDs())
	if err != nil {
		return out, err
	}
	var costs []Limit
	for _, limit := range limits {
		if limit.Metric == Cost {
			costs = append(costs, limit)
		}
	}
	for i := range runs {
		costs, out.Runs = append(costs, runs[i].Limits()[0]), append(out.Runs, runs[i].ID())
	}
	h, err := s.binder.unheld(costs, c)
	if err != nil {
		return out, err
	}
	for i := range h.limits {
		out.Limits, out.States = append(out.Limits, h.limits[i].ID), append(out.States, h.states[i].Key)
	}
	out.Params = func(now time.Time) (args []any, err error) {
		for _, st := range h.states {
			p1, p2, err := st.params(now)
			if err != nil {
				return nil, err
			}
			args = append(args, st.Kind, p1, p2)
		}
		return args, nil
	}
	return out, nil
}
