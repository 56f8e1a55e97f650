package budget

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/budget/outage"
	"github.com/llmguard/llmguard/internal/redistest"
)

// lossLimits returns one limit of each shape that counts over time.
func lossLimits() []Limit {
	return []Limit{
		costLimit("win", Org, hour(100)),
		costLimit("exact", Org, Shape{Kind: ExactWindow, Amount: 100, Window: 10 * time.Minute}),
		costLimit("day", User, Shape{Kind: Calendar, Amount: 100, Calendar: "day"}),
		costLimit("bucket", User, Shape{Kind: Bucket, Amount: 100, Refill: 100, Per: 2 * time.Hour}),
		{ID: "par", Subject: Org, Metric: Concurrency, Shape: Shape{Kind: Concurrent, Amount: 5}},
	}
}

// refusedBy requests a hold under one limit and returns its refusal; nil if it was held.
func (f *fixture) refusedBy(ctx context.Context, l Limit) *ExceededError {
	f.t.Helper()
	h, err := f.Hold(ctx, Terms{Limits: []Limit{l}, Call: f.call(), Max: cost(1), Expected: cost(1)})
	var e *ExceededError
	if errors.As(err, &e) {
		return e
	}
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.Void(ctx, h); err != nil {
		f.t.Fatal(err)
	}
	return nil
}

// TestLimitsCloseAfterALoss: when the store lost its data, every limit is closed for the length of
// its window from that moment, starting with the very first call, also for a process that never saw
// the old data and for an org with a settle in between. A new store closes nothing.
func TestLimitsCloseAfterALoss(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		limits := lossLimits()
		late := f.hold(ctx, limits, 10) // a new store closes nothing
		if err := rdb.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		f.settle(ctx, late, 5) // usage in the limits does not prove that they are intact
		if e := f.refusedBy(ctx, limits[0]); e == nil || e.Binding.Wait != time.Hour || e.Soon || e.Binding.Never {
			t.Fatalf("first call after the loss: %+v", e)
		}
		other := newFixture(t, rdb, Options{})
		other.org = f.org
		midnight := time.Date(2026, 11, 19, 0, 0, 0, 0, time.UTC).Sub(start)
		for i, open := range []time.Duration{time.Hour, 10 * time.Minute, midnight, 2 * time.Hour} {
			for _, s := range []*fixture{f, other} {
				s.now.Store(start.Add(open - time.Second).UnixMicro())
				e := s.refusedBy(ctx, limits[i])
				if e == nil || !e.Binding.ClosedUntil.Equal(start.Add(open)) || e.Binding.Wait != time.Second || e.Binding.Remaining != 0 {
					t.Fatalf("%s a second before it opens: %+v", limits[i].ID, e)
				}
				list, err := s.Peek(ctx, limits[i:i+1], s.call())
				if err != nil || !list[0].ClosedUntil.Equal(start.Add(open)) {
					t.Fatalf("%s shown as %+v, %v", limits[i].ID, list, err)
				}
				s.now.Store(start.Add(open).UnixMicro())
				if e := s.refusedBy(ctx, limits[i]); e != nil {
					t.Fatalf("%s when it opens: %+v", limits[i].ID, e)
				}
			}
		}
		f.now.Store(start.UnixMicro())
		if e := f.refusedBy(ctx, limits[4]); e != nil {
			t.Errorf("open calls are in no window: %+v", e)
		}
	})
}

// TestCapsCloseAfterALoss: spend caps close too.
func TestCapsCloseAfterALoss(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, shared(t), Options{})
	caps := []Cap{{Limits: []Limit{costLimit("all", Org, hour(100))}}}
	h, err := f.Hold(ctx, Terms{Caps: caps, Call: f.call(), Max: cost(1), Expected: cost(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Void(ctx, h); err != nil {
		t.Fatal(err)
	}
	f.rdb.FlushAll(ctx)
	_, err = f.Hold(ctx, Terms{Caps: caps, Call: f.call(), Max: cost(1), Expected: cost(1)})
	var e *ExceededError
	if !errors.As(err, &e) || e.Cap == nil || e.Binding.ClosedUntil.IsZero() {
		t.Fatalf("cap after a loss: %v", err)
	}
}

// TestReopen: an operator reopens the limits of one org, or of all, and a later loss closes them
// again.
func TestReopen(t *testing.T) {
	ctx := t.Context()
	rdb := shared(t)
	f, g := newFixture(t, rdb, Options{}), newFixture(t, rdb, Options{})
	operator := New(redistest.DB(rdb), Options{})
	limit := costLimit("win", Org, hour(100))
	closed := func(what string, wantF, wantG bool) {
		t.Helper()
		gotF, gotG := f.refusedBy(ctx, limit) != nil, g.refusedBy(ctx, limit) != nil
		if gotF != wantF || gotG != wantG {
			t.Fatalf("%s: closed %v and %v, want %v and %v", what, gotF, gotG, wantF, wantG)
		}
	}
	closed("a new store", false, false)
	rdb.FlushAll(ctx)
	f.pass(time.Second)
	g.pass(time.Second)
	closed("after a loss", true, true)
	if at, err := operator.DataLoss.At(ctx); err != nil || at.IsZero() {
		t.Errorf("loss at %v, %v", at, err)
	}
	if err := operator.DataLoss.Reopen(ctx, f.org); err != nil {
		t.Fatal(err)
	}
	closed("one org reopened", false, true)
	if err := operator.DataLoss.ReopenAll(ctx); err != nil {
		t.Fatal(err)
	}
	if err := g.DataLoss.Look(ctx); err != nil { // as the watcher does once a second
		t.Fatal(err)
	}
	closed("all reopened", false, false)
	if at, err := operator.DataLoss.At(ctx); err != nil || !at.IsZero() {
		t.Errorf("accepted loss at %v, %v", at, err)
	}
	rdb.FlushAll(ctx)
	f.pass(time.Second)
	g.pass(time.Second)
	closed("lost again", true, true)
}

// TestOpenAfterLoss: with OpenAfterLoss, limits count from zero.
func TestOpenAfterLoss(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, shared(t), Options{OpenAfterLoss: true})
	limit := costLimit("win", Org, hour(100))
	f.hold(ctx, []Limit{limit}, 10)
	f.rdb.FlushAll(ctx)
	f.pass(time.Second)
	if e := f.refusedBy(ctx, limit); e != nil {
		t.Fatal(e)
	}
}

// TestLossBetweenProcesses: the file that remembers the epoch reveals a loss that happened while no
// process ran; restoring an older backup is not a loss.
func TestLossBetweenProcesses(t *testing.T) {
	ctx := t.Context()
	rdb, file := shared(t), filepath.Join(t.TempDir(), "epoch")
	limit := costLimit("win", Org, hour(100))
	f := newFixture(t, rdb, Options{EpochFile: file})
	f.hold(ctx, []Limit{limit}, 10)
	backup := rdb.Get(ctx, outage.EpochKey).Val()
	next := func() *fixture {
		s := newFixture(t, rdb, Options{EpochFile: file})
		s.org = f.org
		s.now.Store(f.now.Add(time.Second.Microseconds()))
		return s
	}
	if e := next().refusedBy(ctx, limit); e != nil {
		t.Fatalf("a restart with all data: %v", e)
	}
	rdb.FlushAll(ctx)
	if e := next().refusedBy(ctx, limit); e == nil {
		t.Fatal("a restart without data closes nothing")
	}
	rdb.FlushAll(ctx)
	rdb.Set(ctx, outage.EpochKey, backup, 0)
	rdb.Set(ctx, ledger.Key(f.org, outage.MarkName), 0, 0)
	if e := next().refusedBy(ctx, limit); e != nil {
		t.Fatalf("a backup was restored: %v", e)
	}
}

// TestStoreOfAnOlderVersion: data without marks, under the epoch of older versions, are intact;
// their loss is detected.
func TestStoreOfAnOlderVersion(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, shared(t), Options{})
	limit := costLimit("win", Org, hour(100))
	f.rdb.Set(ctx, outage.EpochKey, "2EWWTDSQNHP5FVOYBSLKJ3YAAA", 0)
	f.hold(ctx, []Limit{limit}, 10)
	f.used(ctx, []Limit{limit}, [2]int64{10, 10})
	f.rdb.FlushAll(ctx)
	if e := f.refusedBy(ctx, limit); e == nil {
		t.Fatal("the loss closes nothing")
	}
}

// TestJoinedHoldsAfterALoss: holds joined in one script run are refused too.
func TestJoinedHoldsAfterALoss(t *testing.T) {
	w := newTwins(t, shared(t), shared(t), 1)
	w.limits = w.limits[:1]
	for _, rdb := range []*redis.Client{w.joined, w.single} {
		rdb.FlushAll(t.Context())
	}
	_, cmds := w.flight("ann", "bob", "cat")
	w.fly(cmds)
	for _, cmd := range cmds {
		if a, err := decode(answerOf(cmd)); err != nil || a.verdict != "mark" || a.head[1] != -1 {
			t.Errorf("hold without a mark: %+v, %v", a, err)
		}
	}
}

// TestShareAfterALoss: a process that knows of a loss admits nothing from its own share either.
func TestShareAfterALoss(t *testing.T) {
	ctx := t.Context()
	server := redistest.Start(t)
	s := openJournaled(t, server, t.TempDir(), Options{})
	limits := []Limit{costLimit("win", Org, hour(1000))}
	if _, err := s.Hold(ctx, Terms{Limits: limits, Call: shareCall("ann", 1), Max: cost(1), Expected: cost(1)}); err != nil {
		t.Fatal(err)
	}
	server.FlushAll()
	var e *ExceededError
	if _, err := s.Hold(ctx, Terms{Limits: limits, Call: shareCall("ann", 2), Max: cost(1), Expected: cost(1)}); !errors.As(err, &e) {
		t.Fatal(err)
	}
	server.Kill()
	if _, err := s.Offline.AdmitShare(ctx, Terms{Limits: limits, Call: shareCall("ann", 3), Max: cost(1)}, 10); !errors.As(err, &e) || e.Binding.ClosedUntil.IsZero() {
		t.Errorf("admitted: %v", err)
	}
}

// TestRunsOfALostNameAreClosed: after a loss of data, a run whose id may have been in use counts as used for
// as long as an earlier one could have lived. A new id is open.
func TestRunsOfALostNameAreClosed(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		create := func(id string, before time.Duration) Run {
			run, _, err := f.Runs.Create(ctx, NewRun{
				Run:  Run{Path: ledger.RunPath("").Below(id), Org: f.org, Amount: 100, Key: "k1", User: "u1", Name: "nightly"},
				Life: time.Hour, Most: 100, Before: before,
			})
			if err != nil {
				t.Fatal(err)
			}
			return run
		}
		spends := func(run Run) *ExceededError {
			h, err := f.Hold(ctx, f.in(100, run))
			var e *ExceededError
			if err == nil {
				f.settle(ctx, h, 100)
			} else if !errors.As(err, &e) {
				t.Fatal(err)
			}
			return e
		}
		const most = 3 * time.Hour
		if e := spends(create("run_named", most)); e != nil {
			t.Fatalf("before the loss: %+v", e)
		}
		if err := rdb.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // its own life, and that of its predecessor
			if e := spends(create("run_named", most)); e == nil || e.Binding.ClosedUntil.IsZero() {
				t.Errorf("the same name after the loss: %+v, want it closed", e)
			}
			f.pass(time.Hour + RunKept)
			rdb.Del(ctx, runKey(f.org, "run_named")) // its lifetime is by another clock
		}
		if e := spends(create("run_new", 0)); e != nil {
			t.Errorf("a new id after the loss: %+v", e)
		}
		if e := spends(create("run_named", most)); e != nil {
			t.Errorf("after the longest life: %+v", e)
		}
	})
}
