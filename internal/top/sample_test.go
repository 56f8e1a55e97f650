package top

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// floor is a deployment with one org, acme, on its own Redis.
type floor struct {
	*Sampler
	from  Source
	t     *testing.T
	books *budget.Store
	rdb   *redis.Client
	org   *guard.Org
}

func newFloor(t *testing.T) *floor {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	t.Cleanup(func() { _ = rdb.Close() })
	pools := []queue.Pool{{ID: "gpt", RPM: 60}}
	q, err := queue.New(redistest.DB(rdb), pools, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	perOrg := budget.Limit{ID: "org-day", Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Window, Window: 24 * time.Hour, Amount: 1_000_000_000}}
	perUser := budget.Limit{ID: "user-day", Subject: budget.User, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Window, Window: 24 * time.Hour, Amount: 100_000_000}}
	f := &floor{t: t, rdb: rdb, books: budget.New(redistest.DB(rdb), budget.Options{}), org: &guard.Org{Org: settings.Org{ID: "acme"}, Limits: []budget.Limit{perOrg, perUser}}}
	f.Sampler, f.from = NewSampler(f.books), Source{Queue: q, Orgs: map[string]*guard.Org{"acme": f.org}, By: dim(t, "model")}
	return f
}

func dim(t *testing.T, name string) ledger.Dimension {
	t.Helper()
	d, err := ledger.DimensionOf(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// spend settles one call of a user.
func (f *floor) spend(user string, cost pricing.Nano, waited time.Duration, status int) {
	f.t.Helper()
	ctx, amounts := f.t.Context(), budget.Amounts{Cost: cost, Tokens: 1}
	h, err := f.books.Hold(ctx, budget.Terms{Limits: f.org.Limits, Call: ledger.Call{ID: wire.NewCallID(), Org: "acme", User: user, Model: "gpt-4o"}, Max: amounts, Expected: amounts})
	if err == nil {
		_, err = f.books.Settle(ctx, h, budget.Settlement{Actual: amounts, Outcome: "done", Status: status, Waited: waited, Took: time.Second})
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *floor) sample(user string) *Snapshot {
	f.t.Helper()
	s, err := f.Sample(f.t.Context(), f.from, user)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// TestSample: successive samples contain every call once, sums and limits match the store, and
// a minute later only the sum of the day contains the calls.
func TestSample(t *testing.T) {
	f := newFloor(t)
	now := time.Now()
	f.now = func() time.Time { return now }
	f.spend("alice", 30_000_000, 3*time.Second, 200)
	f.spend("bob", 10_000_000, 0, 500)
	s := f.sample("acme/alice")
	if s.Calls != 2 || s.Cost != 40_000_000 || s.Today != 40_000_000 || s.Partial {
		t.Errorf("%d calls of %s, %s today", s.Calls, s.Cost, s.Today)
	}
	if len(s.Users) != 2 || s.Users[0].User != "alice" || s.Users[0].Cost != 30_000_000 || s.Users[1].Failed != 1 || s.Users[0].Failed != 0 {
		t.Errorf("users %+v", s.Users)
	}
	if len(s.Slow) != 2 || s.Slow[0].User != "alice" || s.Slow[0].Waited != 3*time.Second || s.Slow[0].Took != time.Second {
		t.Errorf("slowest %+v", s.Slow)
	}
	if l := s.Orgs[0].Limits; len(l) != 1 || l[0].Name != "org-day" || l[0].Used != 40_000_000 || l[0].Mode != "enforce" {
		t.Errorf("limits of the org %+v", l)
	}
	if l := s.Users[0].Limits; len(l) != 1 || l[0].Name != "user-day" || l[0].Used != 30_000_000 || l[0].Amount != 100_000_000 {
		t.Errorf("limits of alice %+v", l)
	}
	if l := s.Users[1].Limits; len(l) != 1 || l[0].Used != 10_000_000 {
		t.Errorf("limits of bob, who spends most after her: %+v", l)
	}
	if p := s.Pools; len(p) != 1 || p[0].ID != "gpt" || p[0].Rates[0].Limit != 60 {
		t.Errorf("pools %+v", p)
	}

	f.spend("bob", 5_000_000, 0, 200)
	now = now.Add(sumsAge + time.Minute/4)
	if s = f.sample(""); s.Calls != 3 || s.Cost != 45_000_000 || s.Today != 45_000_000 {
		t.Errorf("then %d calls of %s, %s today", s.Calls, s.Cost, s.Today)
	}
	now = now.Add(2 * time.Hour).Truncate(24 * time.Hour).Add(24*time.Hour - time.Minute) // perhaps on another day
	if s = f.sample(""); s.Calls != 0 || s.Cost != 0 || len(s.Slow) != 0 {
		t.Errorf("a minute later %d calls of %s, %d slow ones", s.Calls, s.Cost, len(s.Slow))
	}
}

// TestSampleIsBounded: of very many calls only the newest are read, and the sample says so.
func TestSampleIsBounded(t *testing.T) {
	f := newFloor(t)
	f.most = 3
	for range 5 {
		f.spend("u", 1, 0, 200)
	}
	if s := f.sample(""); !s.Partial || s.Calls != 3 {
		t.Errorf("%+v", s)
	}
	f.spend("u", 1, 0, 200)
	if s := f.sample(""); !s.Partial || s.Calls != 3 {
		t.Errorf("after one more %+v", s)
	}
}

// TestSampleOfASpreadOrg: an entry of another part that appears before the newest one, because the
// clock of its server is behind, is counted once.
func TestSampleOfASpreadOrg(t *testing.T) {
	f := newFloor(t)
	f.books = budget.New(redistest.DB(f.rdb), budget.Options{Spread: func(string) budget.Spread {
		return budget.Spread{Parts: 8, By: budget.User}
	}})
	f.Sampler, f.org.Limits = NewSampler(f.books), f.org.Limits[1:]
	for _, user := range []string{"u1", "u2", "u3", "u4"} {
		f.spend(user, 1, 0, 200)
	}
	if s := f.sample(""); s.Calls != 4 {
		t.Fatalf("got %d calls, want 4", s.Calls)
	}
	places, err := budget.Places(t.Context(), redistest.DB(f.rdb), "acme")
	if err != nil || len(places) < 2 {
		t.Fatalf("got places %v, %v; want several", places, err)
	}
	ledger, other := "lg:{"+places[1]+"}:ledger", "lg:{"+places[0]+"}:ledger"
	entry := f.rdb.XRange(t.Context(), ledger, "-", "+").Val()[0]
	f.rdb.Del(t.Context(), other)
	at, _ := ledgerTime(entry.ID)
	late := redis.XAddArgs{Stream: other, ID: fmt.Sprintf("%d-0", at.UnixMilli()-1), Values: entry.Values}
	if err := f.rdb.XAdd(t.Context(), &late).Err(); err != nil {
		t.Fatal(err)
	}
	before := f.sample("").Calls
	if again := f.sample("").Calls; before != 5 || again != 5 {
		t.Errorf("with a late entry got %d calls, then %d; want 5 of both", before, again)
	}
}

// TestCorrectionIsNoCall: a correction counts as money, but not as a call.
func TestCorrectionIsNoCall(t *testing.T) {
	late := ledger.Entry{Kind: ledger.KindLate, Cost: 1, Call: ledger.Call{ID: "a", User: "u"}}
	snap := &Snapshot{}
	(&orgState{recent: []ledger.Entry{late}}).addTo(snap, "acme", &Source{By: dim(t, "model")})
	if snap.Calls != 0 || snap.Cost != 1 {
		t.Errorf("%+v", snap)
	}
}

// TestTodayIsNoLessThanTheLastMinute: the day's sums are read less often than calls, but
// charges made meanwhile are included.
func TestTodayIsNoLessThanTheLastMinute(t *testing.T) {
	f := newFloor(t)
	began := time.Now().UTC()
	f.spend("alice", 30_000_000, 0, 200)
	f.sample("")
	f.spend("alice", 50_000_000, 0, 200)
	f.spend("bob", 10_000_000, 0, 200)
	s := f.sample("")
	if time.Now().UTC().Day() != began.Day() {
		return // the last minute spans two days
	}
	if s.Cost != 90_000_000 || s.Today != 90_000_000 || s.Orgs[0].Today != 90_000_000 || s.Users[0].Today != 80_000_000 {
		t.Errorf("%s in the last minute, today %s, of the org %s, of alice %s; want $0.09 and of alice $0.08", s.Cost, s.Today, s.Orgs[0].Today, s.Users[0].Today)
	}
}
