package queue

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
)

// TestRefusedByACap: a spend cap is of all orgs. Used up it parks the pool, for a
// second; with room the org whose call it refused; when it is for some models
// those of the org, also when a limit of the org has its name.
func TestRefusedByACap(t *testing.T) {
	f := func(own, cap []string, left int64, want Scope) {
		t.Helper()
		plan := &guard.Plan{Limits: []budget.Limit{{ID: "day", Subject: budget.Org, Models: own}}}
		e := &guard.Refusal{ExceededError: &budget.ExceededError{
			Binding: budget.Status{LimitID: "day", Subject: budget.Org, Wait: time.Hour, Amount: 1000, Remaining: left},
			Cap:     &budget.Cap{Limits: []budget.Limit{{ID: "day", Subject: budget.Org, Models: cap}}},
		}}
		v := (&runner{}).refused(&Job{Class: Async}, plan, e)
		wait := latePark
		if want == ParkPool {
			wait = soonPark
		}
		if v.Kind != Park || v.Scope != want || v.Wait != wait {
			t.Errorf("%+v, want scope %d for %s", v, want, wait)
		}
	}
	f(nil, nil, 0, ParkPool)
	f(nil, nil, 9, ParkPool)
	f(nil, nil, 10, ParkOrg)
	f([]string{"gpt-*"}, nil, 500, ParkOrg)
	f(nil, []string{"gpt-*"}, 0, ParkOrgModel)
}
