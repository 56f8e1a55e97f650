package cli_test

import (
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// userDay is the limit "daily" of orgs, in the store's form.
var userDay = budget.Limit{
	ID: "daily", Subject: budget.User, Metric: budget.Cost,
	Shape: budget.Shape{Kind: budget.Window, Amount: 5e9, Window: 24 * time.Hour},
}

// charge records a call in the ledger and charges it to userDay.
func (s *site) charge(c ledger.Call, cost pricing.Split, u pricing.Usage) string {
	s.t.Helper()
	store := budget.New(redistest.DB(s.redis), budget.Options{})
	c.ID = wire.NewCallID()
	amounts := budget.Amounts{Cost: cost.Total()}
	hold, err := store.Hold(s.t.Context(), budget.Terms{Limits: []budget.Limit{userDay}, Call: c, Max: amounts, Expected: amounts})
	if err != nil {
		s.t.Fatal(err)
	}
	end := budget.Settlement{Actual: amounts, Split: cost, Usage: u, Outcome: "completed", Status: 200}
	if _, err := store.Settle(s.t.Context(), hold, end); err != nil {
		s.t.Fatal(err)
	}
	return c.ID
}
