package budget

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
)

// counting counts round trips.
type counting struct{ trips atomic.Int64 }

func (c *counting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.trips.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.trips.Add(1)
		return next(ctx, cmds)
	}
}

// inOrgs holds one call in each of the given number of orgs.
func (f *fixture) inOrgs(orgs int) (ids []string) {
	f.t.Helper()
	for i := range orgs {
		c := f.call()
		c.Org = fmt.Sprintf("%s-%d", f.org, i)
		if _, err := f.Hold(f.t.Context(), Terms{Limits: []Limit{costLimit("win", User, hour(1000))}, Call: c, Max: cost(1), Expected: cost(1)}); err != nil {
			f.t.Fatal(err)
		}
		ids = append(ids, c.Org)
	}
	return ids
}

// renewedTo counts the orgs whose lease ends exactly one lease from now.
func (f *fixture) renewedTo(orgs []string) (n int) {
	for _, org := range orgs {
		ends := f.rdb.ZRangeWithScores(f.t.Context(), ledger.Key(org, "leases"), 0, 0).Val()
		if len(ends) == 1 && int64(ends[0].Score) == f.now.Load()+f.opts.Lease.Microseconds() {
			n++
		}
	}
	return n
}

// TestRenewalsOfManyOrgsShareRoundTrips: the holds of many orgs are renewed in few round trips,
// also on a server that does not have the script.
func TestRenewalsOfManyOrgsShareRoundTrips(t *testing.T) {
	f := newFixture(t, shared(t), Options{})
	orgs := f.inOrgs(300)
	f.pass(f.opts.Lease / 2)
	count := &counting{}
	f.rdb.AddHook(count)
	if err := f.leases.renewDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count.trips.Load(); n > 40 {
		t.Errorf("%d round trips for the renewals of %d orgs", n, len(orgs))
	}
	if n := f.renewedTo(orgs); n != len(orgs) {
		t.Errorf("%d of %d are renewed", n, len(orgs))
	}
	if late := f.rdb.ZCount(t.Context(), Registry, "-inf", fmt.Sprint(f.now.Load()/1000)).Val(); late != 0 {
		t.Errorf("%d orgs are due in the registry", late)
	}
}

// TestRenewalCountsWhenItIsAnswered: a renewal that the store did not answer is due again in the
// next round, before its lease ends; answered ones are not.
func TestRenewalCountsWhenItIsAnswered(t *testing.T) {
	f := newFixture(t, shared(t), Options{})
	orgs := f.inOrgs(3)
	f.pass(f.opts.Lease / 2)
	away := &failOnce{word: "{" + orgs[1] + "}"}
	away.armed.Store(true)
	f.rdb.AddHook(away)
	if err := f.leases.renewDue(t.Context()); err == nil {
		t.Error("a renewal without an answer is no error")
	}
	if n := f.renewedTo(orgs); n != 2 {
		t.Fatalf("%d of 3 are renewed, 1 was not answered", n)
	}
	if due := f.leases.dueRenewals(f.leases.places[orgs[0]].renewed); len(due) != 1 || due[0].place != orgs[1] {
		t.Fatalf("due again are %v", due)
	}
	if err := f.leases.renewDue(t.Context()); err != nil || f.renewedTo(orgs) != 3 {
		t.Errorf("%d of 3 are renewed: %v", f.renewedTo(orgs), err)
	}
}
