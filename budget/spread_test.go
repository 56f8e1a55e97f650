package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// spreadStore is a fixture whose org has parts.
type spreadStore struct {
	*fixture
	parts int
}

func newSpread(t *testing.T, rdb *redis.Client, parts int, o Options) *spreadStore {
	f := &spreadStore{parts: parts}
	o.Spread = func(string) Spread { return Spread{Parts: f.parts, By: User} }
	f.fixture = newFixture(t, rdb, o)
	return f
}

// of returns a new call of one of some users.
func (f *spreadStore) of(user int) ledger.Call {
	c := f.call()
	c.User = fmt.Sprintf("user%d", user)
	return c
}

// charge holds and settles a call of each of n users for 7, and returns the ids.
func (f *spreadStore) charge(n int, limits ...Limit) (ids []string) {
	f.t.Helper()
	for user := range n {
		h, err := f.Hold(f.t.Context(), Terms{Limits: limits, Call: f.of(user), Max: cost(10)})
		if err != nil {
			f.t.Fatal(err)
		}
		f.settle(f.t.Context(), h, 7)
		ids = append(ids, h.Call.ID)
		f.pass(time.Millisecond)
	}
	return ids
}

// entries returns the ids of calls in the ledger, their ledger ids, and the sum.
func (f *spreadStore) entries(read ledger.ReadEntries) (ids, positions []string, sum pricing.Nano) {
	f.t.Helper()
	err := read(f.t.Context(), f.org, time.Time{}, time.Time{}, func(e ledger.Entry) error {
		ids, positions, sum = append(ids, e.ID), append(positions, e.LedgerID), sum+e.Cost
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return ids, positions, sum
}

// wantBooks checks that ledger and sums have these calls at 7 each, each once.
func (f *spreadStore) wantBooks(ids []string) {
	f.t.Helper()
	want := pricing.Nano(7 * len(ids))
	for name, read := range map[string]ledger.ReadEntries{"oldest first": f.Ledger.Entries, "newest first": f.Ledger.Recent} {
		got, positions, sum := f.entries(read)
		slices.Sort(got)
		slices.Sort(positions)
		if sum != want || !slices.Equal(got, slices.Sorted(slices.Values(ids))) || len(slices.Compact(positions)) != len(ids) {
			f.t.Errorf("%s: got %d calls, %d ledger ids, %d nano-USD; want %d calls, %d", name, len(got),
				len(slices.Compact(positions)), sum, len(ids), want)
		}
	}
	for name, read := range map[string]func(context.Context, string, time.Time, time.Time) ([]ledger.Rollup, error){
		"days": f.Ledger.Rollups, "hours": f.Ledger.HourRollups,
	} {
		list, err := read(f.t.Context(), f.org, start, start.Add(time.Hour))
		total := totalOf(list)
		lines := map[string]bool{}
		for _, r := range list {
			lines[r.User] = true
		}
		if err != nil || total.Cost != want || total.Calls != int64(len(ids)) || len(lines) != len(list) {
			f.t.Errorf("%s: got %d nano-USD of %d calls in %d lines of %d users, %v; want %d of %d", name, total.Cost,
				total.Calls, len(list), len(lines), err, want, len(ids))
		}
	}
}

// totalOf adds up roll-ups.
func totalOf(list []ledger.Rollup) (total ledger.Sums) {
	for i := range list {
		total.Add(list[i].Sums)
	}
	return total
}

// TestSpreadBooks: usage and ledger have every call once, whatever the spread was when it was made.
func TestSpreadBooks(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newSpread(t, rdb, 1, Options{})
		limit := costLimit("day", User, hour(1000))
		var ids []string
		for _, parts := range []int{1, 16, 4, 1, 64} {
			f.parts = parts
			ids = append(ids, f.charge(40, limit)...)
			f.wantBooks(ids)
		}
		f.parts = 1
		f.wantBooks(ids)
		if places, err := f.places.ever(t.Context(), f.org); err != nil || len(places) < 20 {
			t.Errorf("places of an org that is not spread any more: %v, %v", places, err)
		}
		list, err := f.Ledger.UserRollups(t.Context(), f.org, "user3", start, start.Add(time.Hour))
		if err != nil || len(list) != 1 || list[0].Cost != 35 {
			t.Errorf("sums of a user who was in several parts: %+v, %v; want one line of 35", list, err)
		}
	})
}

// TestSpreadLimits: limits of users and keys hold exactly, however many parts there are, and what
// an org's limit in shadow mode counts is the sum of all parts.
func TestSpreadLimits(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newSpread(t, rdb, 16, Options{})
		month := costLimit("month", Org, Shape{Kind: Calendar, Amount: 100, Calendar: "month"})
		month.Mode = Shadow
		limits := []Limit{
			costLimit("user", User, hour(25)), {ID: "key", Subject: Key, Metric: Requests, Shape: hour(2)}, month,
		}
		for user := range 8 {
			for n := range 4 {
				c := f.of(user)
				c.Key = c.User + "-key"
				h, err := f.Hold(ctx, Terms{Limits: limits, Call: c, Max: cost(10)})
				var refused *ExceededError
				if n < 2 && err != nil || n >= 2 && !errors.As(err, &refused) {
					t.Fatalf("call %d of user %d: %v", n, user, err)
				}
				if n == 0 {
					f.settle(ctx, h, 10)
				}
			}
		}
		check := func(what string, c ledger.Call, want ...[2]int64) {
			t.Helper()
			list, err := f.Peek(ctx, limits, c)
			if err != nil {
				t.Fatal(err)
			}
			for i, st := range list {
				if got := [2]int64{st.Used, st.Held}; got != want[i] {
					t.Errorf("%s: limit %s: used, held = %v, want %v", what, st.LimitID, got, want[i])
				}
			}
		}
		check("a user", ledger.Call{Org: f.org, User: "user3", Key: "user3-key"}, [2]int64{20, 10}, [2]int64{2, 1}, [2]int64{160, 80})
		check("a key", ledger.Call{Org: f.org, Key: "user3-key"}, [2]int64{}, [2]int64{2, 1}, [2]int64{160, 80})
		all := func(Subject, string) bool { return true }
		found, err := f.Counters(ctx, f.org, limits, all)
		if err != nil || len(found) != 17 {
			t.Fatalf("got %d counters, %v; want 8 users, 8 keys and the org", len(found), err)
		}
		if err := f.Reset(ctx, limits[1], ledger.Call{Org: f.org, Key: "user3-key"}); err != nil {
			t.Fatal(err)
		}
		check("after a reset of the key", ledger.Call{Org: f.org, Key: "user3-key"}, [2]int64{}, [2]int64{1, 1}, [2]int64{160, 80})
		if err := f.ResetCounters(ctx, found); err != nil {
			t.Fatal(err)
		}
		check("after a reset of all", ledger.Call{Org: f.org, User: "user5", Key: "user5-key"},
			[2]int64{10, 10}, [2]int64{1, 1}, [2]int64{80, 80})
		open, complete, err := f.OpenHolds(ctx, f.org, 100)
		if err != nil || !complete || len(open) != 8 {
			t.Errorf("open holds: %d, complete %v, %v; want 8", len(open), complete, err)
		}
	})
}

// TestSpreadOpenCalls: calls end in the part where they were held, after the spread has changed, by
// another process, from the journal, or by their lease.
func TestSpreadOpenCalls(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newSpread(t, rdb, 16, Options{})
		limit := []Limit{costLimit("user", User, hour(25))}
		var held []*Hold
		for user := range 20 {
			h, err := f.Hold(ctx, Terms{Limits: limit, Call: f.of(user), Max: cost(10)})
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, h)
		}
		f.parts = 3
		for i, h := range held[:5] {
			f.settle(ctx, h, int64(i))
		}
		if err := f.Later(ctx, []Settle{{held[5], &Settlement{Actual: cost(5)}}}, nil); err != nil {
			t.Fatal(err)
		}
		if left, err := f.Deferred.Replay(ctx); left != 0 || err != nil {
			t.Fatalf("%d left in the journal, %v", left, err)
		}
		lost := make([]ledger.Call, 4) // known by their ids only
		for i := range lost {
			lost[i] = held[6+i].Call
			lost[i].Part = 0
		}
		found, err := f.Locate(ctx, f.org, lost)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range found {
			if err := f.VoidLost(ctx, c); err != nil {
				t.Fatal(err)
			}
		}
		other := newFixture(t, rdb, Options{Spread: f.opts.Spread}) // the process died, another sweeps
		other.now.Store(f.now.Load())
		other.pass(time.Minute)
		if err := other.sweepAll(ctx); err != nil {
			t.Fatal(err)
		}
		_, _, sum := f.entries(f.Ledger.Entries)
		if want := pricing.Nano(0 + 1 + 2 + 3 + 4 + 5 + 10*10); sum != want {
			t.Errorf("ledger: got %d, want %d", sum, want)
		}
		for _, h := range held {
			left, err := f.Peek(ctx, limit, h.Call)
			if err != nil || left[0].Held != 0 {
				t.Errorf("%s still holds %+v, %v", h.Call.User, left, err)
			}
		}
	})
}

// sweepAll expires what the registry lists as due.
func (f *fixture) sweepAll(ctx context.Context) error {
	f.leases.judge = true
	all, err := f.Expiry.orphans(ctx)
	for _, o := range all {
		err = errors.Join(err, f.Expiry.sweepOrphan(ctx, o))
	}
	return err
}

// TestSpreadOnACluster: the keys of one org are on all masters, and each script is within one slot.
func TestSpreadOnACluster(t *testing.T) {
	t.Parallel()
	group := redistest.StartCluster(t, 3, 0)
	rdb := group.Client()
	ctx := t.Context()
	s := New(redistest.DB(rdb), Options{Spread: func(string) Spread { return Spread{Parts: 16, By: User} }})
	limits := []Limit{costLimit("user", User, hour(1000)), costLimit("all", Org, hour(1000))}
	limits[1].Mode = Shadow
	nodes := map[*redistest.Server]int{}
	for i := range 48 {
		c := ledger.Call{ID: idAt(time.Now(), i), Org: "acme", User: fmt.Sprintf("user%d", i)}
		h, err := s.Hold(ctx, Terms{Limits: limits, Call: c, Max: cost(10)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Settle(ctx, h, Settlement{Actual: cost(10)}); err != nil {
			t.Fatal(err)
		}
		nodes[group.Owner(ledger.Key(h.Call.Place(), ""))]++
	}
	if len(nodes) != 3 {
		t.Errorf("the calls are on %d masters, want 3", len(nodes))
	}
	list, err := s.Ledger.Rollups(ctx, "acme", time.Now(), time.Now().Add(time.Second))
	total := totalOf(list)
	if err != nil || total.Cost != 480 {
		t.Errorf("sums: got %d, %v; want 480", total.Cost, err)
	}
	found, err := s.Counters(ctx, "acme", limits, func(Subject, string) bool { return true })
	if err != nil || len(found) != 49 {
		t.Errorf("got %d counters, %v; want 49", len(found), err)
	}
}

// TestParts: every part has subjects, and twice as many parts move half of them.
func TestParts(t *testing.T) {
	const users = 20_000
	in := func(parts, user int) int {
		return Spread{Parts: parts, By: User}.partOf(ledger.Call{Org: "acme", User: fmt.Sprintf("user%d", user)})
	}
	for _, parts := range []int{3, 16, 48, 64} {
		counts, masters := map[int]int{}, map[int]int{}
		for user := range users {
			counts[in(parts, user)]++
		}
		for _, part := range (Spread{Parts: parts}).numbers() {
			if n := counts[part]; n < users/parts*7/10 || n > users/parts*13/10 {
				t.Errorf("part %d has %d users, want about %d", part, n, users/parts)
			}
			masters[(part-1)*3/ledger.MostParts]++
		}
		for master := range 3 {
			if n := masters[master]; n < parts/3 || n > parts/3+1 {
				t.Errorf("%d of %d parts are in a third of the slots", n, parts)
			}
		}
	}
	moved := 0
	for user := range users {
		if in(16, user) != in(32, user) {
			moved++
		}
	}
	if moved < users*4/10 || moved > users*6/10 {
		t.Errorf("%d of %d users moved from 16 to 32 parts, want half", moved, users)
	}
}
