package queue

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/quota"
)

// TestRefusedByACap checks what a spend cap of all orgs parks: if it is used up, the pool
// for a second; if it has room, the org whose call it refused; if it is for certain models,
// those of the org, even if a limit of the org has its name.
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

// TestRefusedBesideAnEnd checks that a refusal because of calls in progress is outdated if
// a call of the org has ended since the request; the subject then rests no longer than a
// new request takes.
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

// TestGrantOfAnotherPoolGoesBack checks that when a job whose model moved to another pool
// cannot start, the quota it took from that pool is returned.
func TestGrantOfAnotherPoolGoesBack(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "old"}, Pool{ID: "new", Concurrency: 1})
	c := e.claimOne("old", e.put(e.job("old", "acme", "ann", Async, 10)))
	c.token = "another's"
	var runs orgRuns
	q := &claimedQuota{queue: e.Queue, claim: c, org: runs.enter("acme")}
	plan := &guard.Plan{Request: &wire.Request{Endpoint: wire.ChatCompletions}, Target: providers.Target{Pool: "new"}, Quota: 10}
	call := &guard.Call{Plan: plan, ID: "call", Hold: &budget.Hold{}}
	if err := q.Take(t.Context(), call); err == nil {
		t.Fatal("a claim that is lost was started")
	}
	if n := e.rdb.ZCard(t.Context(), quota.Key("new", "slots")).Val(); n != 0 {
		t.Errorf("%d calls have a place in the new pool, want none", n)
	}
}
