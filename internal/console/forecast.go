package console

import (
	"context"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
)

// usedUp forecasts limits in these states: how long they last at the recent rate, by limit, of those
// that will be used up before they reset.
func (c *Console) usedUp(
	ctx context.Context, limits []budget.Limit, states []budget.Status, who ledger.Call,
) (map[string]time.Duration, error) {
	out := map[string]time.Duration{}
	if len(states) == 0 {
		return out, nil
	}
	burns, err := c.o.Budget.Burns(ctx, who.Org, c.o.Now())
	if err != nil {
		return nil, err
	}
	for i := range states {
		s := &states[i]
		at := slices.IndexFunc(limits, func(l budget.Limit) bool { return l.ID == s.LimitID && l.Subject == s.Subject })
		if at < 0 {
			continue
		}
		if f := burns.Forecast(&limits[at], s, who); f.Known {
			out[s.LimitID] = f.UsedUp
		}
	}
	return out, nil
}
