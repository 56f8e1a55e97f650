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
		limits := []budget.Limit{{ID: "day", Subject: budget.Org, Models: own}}
		scope, rest := RestOf(limits, &budget.ExceededError{
			Binding: budget.Status{LimitID: "day", Subject: budget.Org, Wait: time.Hour, Amount: 1000, Remaining: left},
			Cap:     &budget.Cap{Limits: []budget.Limit{{ID: "day", Subject: budget.Org, Models: cap}}},
		})
		wait := latePark
		if want == ParkPool {
			wait = soonPark
		}
		if scope != want || rest != wait {
			t.Errorf("scope %d for %s, want %d for %s", scope, rest, want, wait)
		}
	}
	f(nil, nil, 0, ParkPool)
	f(nil, nil, 9, ParkPool)
	f(nil, nil, 10, ParkOrg)
	f([]string{"gpt-*"}, nil, 500, ParkOrg)
	f(nil, []string{"gpt-*"}, 0, ParkOrgModel)
}

// TestRefusedBesideAnEnd: a refusal for what is in flight is old when a call of the org has
// ended since it was asked; its subject then rests no longer than it takes to ask again.
func TestRefusedBesideAnEnd(t *testing.T) {
	e := &guard.Refusal{ExceededError: &budget.ExceededError{Soon: true, Binding: budget.Status{Subject: budget.Org, Wait: time.Hour}}}
	var runs orgRuns
	org := runs.enter("acme")
	rest := func(before int) time.Duration {
		return refused(&Job{Class: Async}, e, org, before).Wait
	}
	if got := rest(0); got != alonePark {
		t.Errorf("rests %s while none of its calls runs, want %s", got, alonePark)
	}
	org.start()
	org.start()
	if got := rest(0); got != soonPark {
		t.Errorf("rests %s while its calls run, want %s", got, soonPark)
	}
	org.end()
	if got := rest(0); got != time.Millisecond {
		t.Errorf("rests %s after a call has ended, want 1 ms", got)
	}
	if got := rest(1); got != soonPark {
		t.Errorf("rests %s when no call has ended since it asked, want %s", got, soonPark)
	}
	org.leave()
	if runs.orgs["acme"] != nil {
		t.Error("an org without jobs is still counted")
	}
}
