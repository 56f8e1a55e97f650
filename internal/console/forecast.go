package console

import (
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
)

// limitTable completes the table of the limits that count some subjects: their states, temporary changes, and for how
// long those last at the recent rate that will be used up before they reset.
func (v *visit) limitTable(t limitTable, limits []budget.Limit, of ...budget.Subject) (limitTable, error) {
	ctx, who := v.r.Context(), ledger.Call{Org: t.Org, User: t.User}
	t.Token, t.Back, t.Overrides = v.session.Token, v.r.URL.RequestURI(), v.overrides(t.Org, t.User)
	var err error
	t.Limits, err = v.standing(ctx, limits, who, of...)
	if err != nil || len(t.Limits) == 0 {
		return t, err
	}
	burns, err := v.o.Budget.Burns(ctx, t.Org, v.o.Now())
	if err != nil {
		return t, err
	}
	t.usedUp = map[string]time.Duration{}
	for i := range t.Limits {
		s := &t.Limits[i]
		at := slices.IndexFunc(limits, func(l budget.Limit) bool { return l.ID == s.LimitID && l.Subject == s.Subject })
		if at < 0 {
			continue
		}
		if f := burns.Forecast(&limits[at], s, who); f.Known {
			t.usedUp[s.LimitID] = f.UsedUp
		}
	}
	return t, nil
}
