package budget

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
)

// failOnce fails the commands of the next batch that contain a word, to simulate a store that lost
// one shard.
type failOnce struct {
	word  string
	armed atomic.Bool
}

func (f *failOnce) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *failOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f *failOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var rest []redis.Cmder
		for _, cmd := range cmds {
			if strings.Contains(cmd.String(), f.word) && f.armed.Load() {
				cmd.SetErr(context.DeadlineExceeded)
				continue
			}
			rest = append(rest, cmd)
		}
		if len(rest) < len(cmds) {
			f.armed.Store(false)
		}
		if len(rest) == 0 {
			return nil
		}
		return next(ctx, rest)
	}
}

// TestCapSettledLater: when only a cap could not be settled, the receipt of the charge is returned
// immediately, and settling again settles the cap.
func TestCapSettledLater(t *testing.T) {
	f, caps, ctx := newFixture(t, shared(t), Options{}), everybody(1000), t.Context()
	limits := []Limit{costLimit("own", Org, hour(1e6))}
	warm := f.mustCap(limits, caps, 1)
	f.SettleAll(ctx, []Settle{{Hold: warm}}) // loads the scripts
	away := &failOnce{word: "{cap:deployment}"}
	f.rdb.AddHook(away)
	for _, flight := range []bool{true, false} {
		h := f.mustCap(limits, caps, 100)
		st := Settlement{Actual: cost(40)}
		away.armed.Store(true)
		var r Receipt
		var err error
		if flight {
			done := f.SettleAll(ctx, []Settle{{Hold: h, Settlement: &st}})[0]
			r, err = done.Receipt, done.Err
		} else {
			r, err = f.Settle(ctx, h, st)
		}
		if !errors.Is(err, ErrUnavailable) || r.Charged != 40 || r.Replayed {
			t.Fatalf("flight %v: %+v, %v", flight, r, err)
		}
		if r, err = f.Settle(ctx, h, st); err != nil || !r.Replayed {
			t.Errorf("flight %v: %+v, %v", flight, r, err)
		}
	}
	f.wantCaps(caps, 80, 0)
}

// TestCapEndsAfterItsOrg: the caps hold a call until it has ended in its org, whether it is settled
// or voided, alone or in a batch.
func TestCapEndsAfterItsOrg(t *testing.T) {
	f, caps, ctx := newFixture(t, shared(t), Options{}), everybody(1000), t.Context()
	h := f.mustCap(nil, caps, 1)
	f.SettleAll(ctx, []Settle{{Hold: h}}) // loads the scripts
	away := &failOnce{word: "{" + h.Call.Org + "}"}
	f.rdb.AddHook(away)
	for _, st := range []*Settlement{nil, {Actual: cost(0)}} {
		h, other := f.mustCap(nil, caps, 100), f.call()
		other.Org = "elsewhere"
		beside, err := f.capped(nil, caps, other, 10)
		if err != nil {
			t.Fatal(err)
		}
		away.armed.Store(true)
		done := f.SettleAll(ctx, []Settle{{h, st}, {Hold: beside}})
		if !errors.Is(done[0].Err, ErrUnavailable) || done[1].Err != nil {
			t.Fatalf("%+v", done)
		}
		f.wantCaps(caps, 100, 100)
		if f.leases.places["cap:deployment"].holds[h.ID] != nil {
			t.Error("its lease never ends")
		}
		if done = f.SettleAll(ctx, []Settle{{h, st}}); done[0].Err != nil {
			t.Fatal(done[0].Err)
		}
		f.wantCaps(caps, 0, 0)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	h = f.mustCap(nil, caps, 100)
	if err := f.Void(gone, h); err == nil {
		t.Fatal("given back without the store")
	}
	f.wantCaps(caps, 100, 100)
}

// TestNotKept: an ending that no journal accepts is left to expire, by its own process too, even if
// that process never tried to end it.
func TestNotKept(t *testing.T) {
	server := redistest.Start(t)
	j, caps := openJournaled(t, server, t.TempDir(), Options{}), everybody(1000)
	h, err := j.Hold(t.Context(), Terms{Caps: caps, Call: shareCall("ann", 1), Max: cost(10), Expected: cost(10)})
	if err != nil {
		t.Fatal(err)
	}
	large := &Settlement{Actual: cost(1), UpstreamID: strings.Repeat("x", 2<<20)}
	if err := j.Later(t.Context(), []Settle{{h, large}}, nil); err == nil {
		t.Fatal("kept although it is too large")
	}
	for org, o := range j.leases.places {
		if len(o.holds) > 0 {
			t.Errorf("%s is renewed for ever", org)
		}
	}
}

// TestCapLost: a hold whose answer is lost is returned everywhere, and a hold script that arrives
// late holds nothing.
func TestCapLost(t *testing.T) {
	f, caps, ctx := newFixture(t, shared(t), Options{}), everybody(1000), t.Context()
	limits := []Limit{costLimit("own", Org, hour(1e6))}
	c := f.call()
	// The caller never learns of this hold.
	if _, err := f.Hold(ctx, Terms{Limits: limits, Caps: caps[:1], Call: c, Max: cost(10), Expected: cost(10)}); err != nil {
		t.Fatal(err)
	}
	if err := f.VoidLost(ctx, c, caps...); err != nil {
		t.Fatal(err)
	}
	f.wantCaps(caps, 0, 0)
	f.used(ctx, limits, [2]int64{0, 0})
	if _, err := f.holdCap(caps[1], c); !errors.Is(err, ErrEnded) {
		t.Errorf("it came late and got %v", err)
	}
	for org, o := range f.leases.places {
		if len(o.holds) > 0 {
			t.Errorf("%s is still renewed", org)
		}
	}
}

func (f *fixture) holdCap(spend Cap, c ledger.Call) (*Hold, error) {
	return f.holdOwn(f.t.Context(), (&Terms{Call: c, Max: cost(10), Expected: cost(10)}).under(spend))
}

// countCaps checks the use of every cost limit of the caps, with nothing held.
func countCaps(t *testing.T, s *Store, caps []Cap, used int64) {
	t.Helper()
	for _, c := range caps {
		list, err := s.PeekCap(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range list {
			if st.Metric == Cost && (st.Used != used || st.Held != 0) {
				t.Errorf("cap of %v, %s: %+v, want %d", c, st.LimitID, st, used)
			}
		}
	}
}

// TestCapJournaled: calls kept in the journal and calls admitted without the store are charged to
// the caps as well once the store is back, also by another process.
func TestCapJournaled(t *testing.T) {
	server, dir, caps, ctx := redistest.Start(t), t.TempDir(), everybody(1000), t.Context()
	limits := []Limit{costLimit("own", Org, hour(1000))}
	s := openJournaled(t, server, dir, Options{})
	take := func(n int) *Hold {
		h, err := s.Hold(ctx, Terms{Limits: limits, Caps: caps, Call: shareCall("ann", n), Max: cost(100), Expected: cost(100)})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	settled, voided, lost := take(1), take(2), take(3)
	endings := []Settle{{settled, &Settlement{Actual: cost(30)}}, {Hold: voided}, {Hold: Lost(lost.Call, caps...)}}
	if err := s.Later(ctx, endings, nil); err != nil {
		t.Fatal(err)
	}
	// The process exits before it settles this share.
	if _, err := s.Offline.AdmitShare(ctx, Terms{Limits: limits, Caps: caps, Call: shareCall("ann", 4), Max: cost(60)}, 10); err != nil {
		t.Fatal(err)
	}
	short, err := s.Offline.AdmitAll(ctx, Terms{Limits: limits, Caps: caps, Call: shareCall("ann", 5), Max: cost(500)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Settle(ctx, short, Settlement{Actual: cost(7)}); err != nil { // the store is back by now
		t.Fatal(err)
	}
	s.dead(t)
	heir := openJournaled(t, server, dir, Options{})
	heir.replay(t, 0)
	countCaps(t, heir.Store, caps, 97)
	list, err := heir.Peek(ctx, limits, lost.Call)
	if err != nil || list[0].Used != 97 || list[0].Held != 0 {
		t.Errorf("the org counts %+v, %v", list, err)
	}
}

// TestCapShares: while the store is unreachable, a process admits up to its share of a cap and no
// more.
func TestCapShares(t *testing.T) {
	s := openJournaled(t, redistest.Start(t), t.TempDir(), Options{})
	limits, caps := []Limit{costLimit("own", User, hour(1e6))}, everybody(1000)
	caps[1].Limits[1].Shape.Amount = 900 // the deployment's is the tightest, and is checked last
	admit := func(user string, n int, most int64) (*Hold, error) {
		return s.Offline.AdmitShare(t.Context(), Terms{Limits: limits, Caps: caps, Call: shareCall(user, n), Max: cost(most)}, 10)
	}
	first, err := admit("ann", 1, 80)
	if err != nil {
		t.Fatal(err)
	}
	var e *ExceededError
	if _, err = admit("bob", 2, 15); !errors.As(err, &e) || e.Cap == nil || e.Cap.Provider != "" {
		t.Fatalf("got %v", err)
	}
	if _, err := s.Settle(t.Context(), first, Settlement{Actual: cost(20)}); err != nil {
		t.Fatal(err)
	}
	if _, err = admit("bob", 3, 70); err != nil { // refused and unused amounts are free again
		t.Error(err)
	}
}

// TestCapForgotten: an acknowledged call that the store lost is counted again.
func TestCapForgotten(t *testing.T) {
	rdb, caps, ctx := shared(t), everybody(1000), t.Context()
	s := New(redistest.DB(rdb), Options{Tail: time.Minute})
	h, err := s.Hold(ctx, Terms{Caps: caps, Call: shareCall("ann", 1), Max: cost(100), Expected: cost(100)})
	if err != nil {
		t.Fatal(err)
	}
	s.SettleAll(ctx, []Settle{{h, &Settlement{Actual: cost(40)}}})
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	countCaps(t, s, caps, 0)
	if err := s.watcher.Replay(ctx); err != nil {
		t.Fatal(err)
	}
	countCaps(t, s, caps, 40)
}
