package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// everybody returns a cap of the deployment and one of a provider, with all shapes and metrics that
// caps have.
func everybody(amount int64) []Cap {
	return []Cap{
		{Provider: "openai", Limits: []Limit{
			costLimit("purse", Org, Shape{Kind: Bucket, Amount: amount}),
			{ID: "calls", Subject: Org, Metric: Requests, Shape: Shape{Kind: ExactWindow, Amount: 1000, Window: time.Hour}},
		}},
		{Limits: []Limit{
			costLimit("month", Org, Shape{Kind: Calendar, Amount: amount, Calendar: "month"}),
			costLimit("hour", Org, hour(amount)),
		}},
	}
}

// wantCaps checks the used and held amounts of every cost limit of the caps.
func (f *fixture) wantCaps(caps []Cap, used, held int64) {
	f.t.Helper()
	for _, c := range caps {
		list, err := f.PeekCap(context.Background(), c)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, s := range list {
			if s.Metric == Cost && (s.Used != used || s.Held != held) {
				f.t.Errorf("cap of %v, %s: used %d, held %d, want %d and %d", c, s.LimitID, s.Used, s.Held, used, held)
			}
		}
	}
}

func (f *fixture) capped(limits []Limit, caps []Cap, c ledger.Call, n int64) (*Hold, error) {
	return f.Hold(f.t.Context(), Terms{Limits: limits, Caps: caps, Call: c, Max: cost(n), Expected: cost(n)})
}

func (f *fixture) mustCap(limits []Limit, caps []Cap, n int64) *Hold {
	f.t.Helper()
	h, err := f.capped(limits, caps, f.call(), n)
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

// TestCaps: calls of all orgs count under a cap from hold to end, and only their orgs have ledgers.
func TestCaps(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		reg := prometheus.NewPedanticRegistry()
		f, caps, ctx := newFixture(t, rdb, Options{Metrics: reg}), everybody(1000), t.Context()
		limits := []Limit{costLimit("own", Org, hour(1e6))}
		if err := RegisterCaps(ctx, reg, f.Store, func() []Cap { return caps }); err != nil {
			t.Fatal(err)
		}

		first := f.mustCap(limits, caps, 400)
		other := f.call()
		other.Org = "elsewhere"
		second, err := f.capped(limits, caps, other, 300)
		if err != nil {
			t.Fatal(err)
		}
		f.wantCaps(caps, 700, 700)
		for range 2 { // repeating ends nothing twice
			f.settle(ctx, first, 450) // an overrun counts as usual
			if err := f.Void(ctx, second); err != nil {
				t.Fatal(err)
			}
		}
		f.wantCaps(caps, 450, 0)
		f.used(ctx, limits, [2]int64{450, 0})

		if n := testutil.ToFloat64(f.metrics.cost); n != 450e-9 {
			t.Errorf("the settled cost is %v, with the caps counted again", n)
		}
		if keys := rdb.Keys(ctx, "lg:{cap:*}:*").Val(); len(keys) == 0 || strings.Contains(strings.Join(keys, " "), "ledger") ||
			strings.Contains(strings.Join(keys, " "), "}:sums:") {
			t.Errorf("caps have the keys %q", keys)
		}
		want := `
# HELP llmguard_budget_cap_used Current usage of a spend cap, including open holds. Without a provider: of the deployment. In the metric's unit; cost in USD.
# TYPE llmguard_budget_cap_used gauge
llmguard_budget_cap_used{limit="calls",metric="requests",provider="openai"} 1
llmguard_budget_cap_used{limit="hour",metric="cost",provider=""} 4.5e-07
llmguard_budget_cap_used{limit="month",metric="cost",provider=""} 4.5e-07
llmguard_budget_cap_used{limit="purse",metric="cost",provider="openai"} 4.5e-07
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "llmguard_budget_cap_used"); err != nil {
			t.Error(err)
		}
	})
}

// TestCapRefuses: a refusal by a cap leaves no trace, a call that an org's own limit refuses never
// reaches the caps, and a refusal reports only the org's statuses.
func TestCapRefuses(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f, ctx := newFixture(t, rdb, Options{}), t.Context()
		limits := []Limit{costLimit("own", Org, hour(600))}
		caps := everybody(1000)
		caps[1].Limits[1].Shape.Amount = 500 // the deployment's hour is the tightest
		f.mustCap(limits, caps, 400)

		_, err := f.capped(limits, caps, f.call(), 150)
		var e *ExceededError
		if !errors.As(err, &e) || e.Cap == nil || e.Cap.Provider != "" || e.Binding.LimitID != "hour" || e.Binding.Wait <= 0 {
			t.Fatalf("got %v", err)
		}
		if len(e.Statuses) != 1 || e.Statuses[0].LimitID != "own" || e.Statuses[0].Used != 400 || e.Statuses[0].Held != 400 || e.Statuses[0].Remaining != 200 {
			t.Errorf("the refusal says %+v", e.Statuses)
		}
		if n := testutil.ToFloat64(f.metrics.caps.WithLabelValues("", "hour", "enforce")); n != 1 {
			t.Errorf("%v refusals counted", n)
		}
		f.wantCaps(caps, 400, 400)
		f.used(ctx, limits, [2]int64{400, 400})

		before := rdb.DBSize(ctx).Val()
		if _, err = f.capped(limits, caps, ledger.Call{ID: f.call().ID, Org: "poor"}, 601); !errors.As(err, &e) || e.Cap != nil {
			t.Errorf("got %v", err)
		}
		if after := rdb.DBSize(ctx).Val(); after > before+1 { // its registry
			t.Errorf("%d keys became %d", before, after)
		}
		if n := len(f.leases.places["cap:deployment"].holds); n != 1 {
			t.Errorf("%d holds of the deployment are renewed", n)
		}
	})
}

// TestCapShadow: a shadow cap counts and reports, and refuses nothing.
func TestCapShadow(t *testing.T) {
	f := newFixture(t, shared(t), Options{})
	caps := everybody(100)
	for i := range caps {
		for j := range caps[i].Limits {
			caps[i].Limits[j].Mode = Shadow
		}
	}
	f.settle(t.Context(), f.mustCap(nil, caps, 250), 250)
	f.wantCaps(caps, 250, 0)
	if n := testutil.ToFloat64(f.metrics.caps.WithLabelValues("openai", "purse", "shadow")); n != 1 {
		t.Errorf("%v refusals in the shadow", n)
	}
}

// TestCapCrash: a process that dies between two scripts leaves a cap that counts too much or
// exactly right, never too little.
func TestCapCrash(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f, caps, ctx := newFixture(t, rdb, Options{}), everybody(1000), t.Context()
		f.mustCap(nil, caps, 100)        // dies with the call under way
		late := f.mustCap(nil, caps, 70) // was only slow
		half := f.mustCap(nil, caps, 50) // dies between its own settle and the caps'
		if _, err := f.Store.settler.settle(ctx, Settle{half, &Settlement{Actual: cost(20)}}); err != nil {
			t.Fatal(err)
		}
		f.pass(2 * time.Minute)
		heir := New(redistest.DB(rdb), Options{}) // another process
		heir.clock.fake = f.now.Load
		f.seenForLong()
		if err := heir.Expiry.sweepDue(ctx); err != nil {
			t.Fatal(err)
		}
		f.wantCaps(caps, 220, 0)
		f.settle(ctx, late, 30)
		f.wantCaps(caps, 180, 0)
		f.settle(ctx, half, 20) // as a journal would
		f.wantCaps(caps, 150, 0)
		if left := rdb.ZCard(ctx, Registry).Val(); left != 0 {
			t.Errorf("%d scopes are swept for ever", left)
		}
	})
}

// TestCapExtend: a hold grows together with its caps, or not at all.
func TestCapExtend(t *testing.T) {
	f, ctx := newFixture(t, shared(t), Options{}), t.Context()
	limits, caps := []Limit{costLimit("own", Org, hour(250))}, everybody(1000)
	caps[0].Limits[0].Shape.Amount = 200
	h := f.mustCap(limits, caps, 100)
	if _, err := f.Extend(ctx, h, cost(60)); err != nil || h.Max.Cost != 160 {
		t.Fatalf("%v, held %d", err, h.Max.Cost)
	}
	f.wantCaps(caps, 160, 160)
	_, err := f.Extend(ctx, h, cost(50))
	var e *ExceededError
	if !errors.As(err, &e) || e.Cap == nil || e.Cap.Provider != "openai" || h.Max.Cost != 160 || len(e.Statuses) != 1 {
		t.Fatalf("%v, held %d", err, h.Max.Cost)
	}
	f.used(ctx, limits, [2]int64{160, 160})
	caps[0].Limits[0].Shape.Amount = 1000
	h.caps[0].limits[0].Shape.Amount = 1000
	for range 2 { // refused by the org: the excess held by the caps does not grow again
		if _, err := f.Extend(ctx, h, cost(100)); !errors.As(err, &e) || e.Cap != nil {
			t.Fatalf("got %v", err)
		}
		f.wantCaps(caps, 260, 260)
	}
	f.settle(ctx, h, 155)
	f.wantCaps(caps, 155, 0)
}

// TestCapCrowd: many orgs on two processes concurrently never exceed a cap, and every charge is
// counted.
func TestCapCrowd(t *testing.T) {
	rdb := shared(t)
	f, caps := newFixture(t, rdb, Options{}), everybody(1000)
	stores := []*Store{New(redistest.DB(rdb), Options{}), New(redistest.DB(rdb), Options{})}
	var charged, admitted, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		rng := rand.New(rand.NewPCG(uint64(i), 5))
		all.Go(func() {
			s, org := stores[i%2], []string{"a", "b", "c", "d"}[i%4]
			for n := range 60 {
				c := ledger.Call{ID: idAt(time.Now(), i*1000+n), Org: org}
				h, err := s.Hold(t.Context(), Terms{Limits: []Limit{costLimit("own", Org, hour(1e6))}, Caps: caps, Call: c, Max: cost(90), Expected: cost(90)})
				var e *ExceededError
				if errors.As(err, &e) {
					refused.Add(1)
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				admitted.Add(1)
				for _, one := range caps {
					list, err := s.PeekCap(t.Context(), one)
					for _, st := range list {
						if err != nil || st.Metric == Cost && st.Used > 1000 {
							t.Errorf("%v, cap at %+v", err, st)
						}
					}
				}
				if rng.IntN(2) == 0 {
					err = s.Void(t.Context(), h)
				} else {
					n := rng.Int64N(12)
					charged.Add(n)
					_, err = s.Settle(t.Context(), h, Settlement{Actual: cost(n)})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	redistest.Wait(t, all.Wait)
	f.clock.fake = nil
	f.wantCaps(caps, charged.Load(), 0)
	if refused.Load() == 0 || admitted.Load() < 20 {
		t.Errorf("%d admitted, %d refused: the cap was not reached", admitted.Load(), refused.Load())
	}
	var booked pricing.Nano
	for _, org := range []string{"a", "b", "c", "d"} {
		list, err := f.Ledger.Rollups(t.Context(), org, time.Now().Add(-24*time.Hour), time.Now().Add(24*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range list {
			booked += one.Cost
		}
	}
	if int64(booked) != charged.Load() {
		t.Errorf("the orgs were charged %d, the caps count %d", booked, charged.Load())
	}
}
