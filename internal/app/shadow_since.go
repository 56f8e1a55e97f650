package app

import (
	"context"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
)

// noteAgain is the pause before a failed note is retried.
const noteAgain = 5 * time.Second

// noteShadow records in Redis since when limits are in shadow mode, now and whenever the
// limits change, until ctx ends. Reports about them count from then on.
func (a *App) noteShadow(ctx context.Context) error {
	noted := map[string][]string{} // by org
	for {
		var again <-chan time.Time
		for id, org := range a.guard.Policy().Orgs {
			limits := shadowLimits(org)
			if before, known := noted[id]; known && slices.Equal(before, limits) {
				continue
			}
			if err := a.budget.NoteShadow(ctx, id, limits); err != nil {
				again = time.After(noteAgain)
				break
			}
			noted[id] = limits
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.limitsChanged:
		case <-again:
		}
	}
}

// shadowLimits returns the limits of an org in shadow mode, including those of groups, single
// users and keys.
func shadowLimits(org *guard.Org) []string {
	var out []string
	add := func(list []budget.Limit) {
		for i := range list {
			if list[i].Mode == budget.Shadow {
				out = append(out, list[i].Is())
			}
		}
	}
	for list := range org.LimitLists() {
		add(list)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
