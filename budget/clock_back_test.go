package budget

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestClockGoesBack: when Redis's clock goes back, for good or after it was ahead, full limits
// reopen after the length of their window, not earlier, and stay open.
func TestClockGoesBack(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		for name, limit := range map[string]Limit{
			"window": costLimit("win", Org, Shape{Kind: Window, Amount: 100, Window: time.Minute}),
			"exact":  costLimit("exact", Org, Shape{Kind: ExactWindow, Amount: 100, Window: time.Minute}),
			"bucket": costLimit("bucket", Org, Shape{Kind: Bucket, Amount: 100, Refill: 100, Per: time.Minute}),
		} {
			for _, back := range []time.Duration{20 * time.Second, 5 * time.Minute, 30 * time.Hour} {
				f := newFixture(t, rdb, Options{Lease: 48 * time.Hour})
				h := f.hold(ctx, []Limit{limit}, 100)
				f.pass(-back)
				e := f.refusedBy(ctx, limit)
				if e == nil || e.Binding.Wait > 63*time.Second {
					t.Fatalf("%s, %s back: %+v", name, back, e)
				}
				f.settle(ctx, h, 100)
				one := 600 * time.Millisecond // time in which a bucket frees capacity for one
				if limit.Shape.Kind != Bucket {
					one = time.Minute
				}
				f.pass(one - 2*time.Millisecond)
				if e := f.refusedBy(ctx, limit); e == nil {
					t.Fatalf("%s, %s back: open early", name, back)
				}
				f.pass(time.Minute + 3*time.Second - one)
				for range 10 { // time advances
					f.settle(ctx, f.hold(ctx, []Limit{limit}, 90), 90)
					f.pass(time.Minute + 3*time.Second)
				}
			}
		}
	})
}

// disturbance is what happens to a full limit; it returns how much later all of it may be free than without.
type disturbance struct {
	name  string
	apply func(f *fixture, l *Limit) time.Duration
	only  ShapeKind // empty: all shapes
}

// each is how much later a limit may reopen for each time that the clock goes back.
const each = 11 * time.Second

func clockBy(by time.Duration) disturbance {
	return disturbance{name: "clock by " + by.String(), apply: func(f *fixture, l *Limit) time.Duration {
		f.pass(by)
		if l.Shape.Kind == Fixed { // waits for its end
			return max(-by, 0)
		}
		return each
	}}
}

func changed(name string, only ShapeKind, later time.Duration, change func(s *Shape)) disturbance {
	return disturbance{name: name, only: only, apply: func(_ *fixture, l *Limit) time.Duration {
		change(&l.Shape)
		return later
	}}
}

// copied replaces keys of the org by copies of others: their names without one prefix, with another.
func (f *fixture) copied(from, to string) {
	f.t.Helper()
	for _, key := range f.rdb.Keys(f.t.Context(), from+"lg:{"+f.org+"}:l:*").Val() {
		if err := f.rdb.Copy(f.t.Context(), key, to+strings.TrimPrefix(key, from), 0, true).Err(); err != nil {
			f.t.Fatal(err)
		}
	}
}

// replicaHas is the prefix of what a replica has: the state when the limit became full.
const replicaHas = "replica "

// TestRefusalsAloneKnowTheTime: a full limit that only refuses, or is only looked at, is free again after its
// window, plus 10 s and a slot for each time that the clock goes back, whatever happens to it meanwhile, and
// never announces a longer wait.
func TestRefusalsAloneKnowTheTime(t *testing.T) {
	shapes := map[ShapeKind]Shape{
		Window:      {Kind: Window, Amount: 100, Window: time.Minute},
		ExactWindow: {Kind: ExactWindow, Amount: 100, Window: time.Minute},
		Bucket:      {Kind: Bucket, Amount: 100, Refill: 100, Per: time.Minute},
		Fixed:       {Kind: Fixed, Amount: 100, Window: time.Minute},
	}
	failover := disturbance{name: "failover", apply: func(f *fixture, _ *Limit) time.Duration {
		f.copied(replicaHas, "")
		return 0
	}}
	cases := [][]disturbance{ // one in each 20 s
		nil,
		{clockBy(-150 * time.Second)},
		{clockBy(-time.Hour)},
		{clockBy(-3 * time.Minute), clockBy(-time.Hour)},
		{clockBy(0), clockBy(-5 * time.Minute)},
		{clockBy(10 * time.Minute)},
		{clockBy(time.Hour), clockBy(-time.Hour)},
		{failover, clockBy(-10 * time.Minute)},
		{clockBy(-10 * time.Minute), failover},
		{changed("amount up", "", 0, func(s *Shape) { s.Amount = 150 }), clockBy(-time.Hour)},
		{changed("amount down", "", 0, func(s *Shape) { s.Amount = 50 }), clockBy(-time.Hour)},
		{changed("refill halved", Bucket, time.Minute, func(s *Shape) { s.Refill = 50 }), clockBy(-time.Hour)},
		{clockBy(-time.Hour), changed("refill doubled", Bucket, 0, func(s *Shape) { s.Refill = 200 })},
		{changed("longer", Window, time.Minute, func(s *Shape) { s.Window *= 2 }), clockBy(-time.Hour)},
		{changed("longer", ExactWindow, time.Minute, func(s *Shape) { s.Window *= 2 }), clockBy(-time.Hour)},
		{clockBy(-time.Hour), changed("shorter", Window, 0, func(s *Shape) { s.Window /= 2 })},
		{clockBy(-time.Hour), changed("shorter", ExactWindow, 0, func(s *Shape) { s.Window /= 2 })},
	}
	both(t, func(t *testing.T, rdb *redis.Client) {
		for kind, shape := range shapes {
			for _, list := range cases {
				if slices.ContainsFunc(list, func(d disturbance) bool { return d.only != "" && d.only != kind }) {
					continue
				}
				for how, ask := range asksAlone {
					if how == "brake" && kind != Window || how == "requests" && kind != Window && kind != Bucket {
						continue // they do not count so
					}
					if how != "refusals" && strings.HasSuffix(t.Name(), "/miniredis") {
						continue // the ways differ in Go alone, and this store is slow
					}
					onlyAsked(t, rdb, shape, list, how, ask)
				}
			}
		}
	})
}

// asksAlone are the ways to ask for a limit without being charged while it is full. They return the state, and
// whether it is free: all of it for holds, or room for a request. A brake is asked with the same window.
var asksAlone = map[string]func(f *fixture, l Limit) (Status, bool){
	"refusals": func(f *fixture, l Limit) (Status, bool) {
		h, err := f.Hold(f.t.Context(), Terms{Limits: []Limit{l}, Call: f.call(), Max: cost(l.Shape.Amount)})
		var e *ExceededError
		if errors.As(err, &e) {
			return e.Binding, false
		}
		if err == nil {
			err = f.Void(f.t.Context(), h)
		}
		if err != nil {
			f.t.Fatal(err)
		}
		return Status{}, true
	},
	"peeks": func(f *fixture, l Limit) (Status, bool) {
		all, err := f.Peek(f.t.Context(), []Limit{l}, f.call())
		if err != nil {
			f.t.Fatal(err)
		}
		return all[0], all[0].Used == 0
	},
	"requests": func(f *fixture, l Limit) (Status, bool) {
		l.Metric = Requests
		f.Requests.mu.Lock()
		clear(f.Requests.full) // it repeats a refusal by the true clock
		f.Requests.mu.Unlock()
		out, err := f.Requests.Count(f.t.Context(), []Limit{l}, f.call())
		if err != nil || out.Local {
			f.t.Fatal(err, out)
		}
		return out.Statuses[0], !out.Refused
	},
	"brake": func(f *fixture, l Limit) (Status, bool) {
		b := brake(f.t.(*testing.T), BrakeRule{Window: l.Shape.Window, Factor: 2000, Floor: 99})
		call := f.call()
		call.Labels = "run=a"
		h, err := f.Hold(f.t.Context(), Terms{Limits: b.Counters(), Call: call, Max: cost(1), Expected: cost(1)})
		if err != nil {
			f.t.Fatal(err)
		}
		_, fires, _ := b.Judge(h.Counters)
		if err := f.Void(f.t.Context(), h); err != nil {
			f.t.Fatal(err)
		}
		return Status{}, !fires
	},
}

// onlyAsked fills a limit, and asks it once a second, or every 10 s for one that waits longer.
func onlyAsked(
	t *testing.T, rdb *redis.Client, shape Shape, list []disturbance, how string, ask func(*fixture, Limit) (Status, bool),
) {
	t.Helper()
	f, name := newFixture(t, rdb, Options{Lease: 48 * time.Hour, CountTimeout: time.Minute}), fmt.Sprint(shape.Kind, ", ", how)
	l := costLimit("full", Org, shape)
	switch how {
	case "requests":
		l.Metric = Requests
		for range shape.Amount {
			count(t, f.Requests, []Limit{l}, f.call())
		}
	case "brake":
		call := f.call()
		call.Labels = "run=a"
		h, err := f.Hold(t.Context(), Terms{
			Limits: brake(t, BrakeRule{Window: shape.Window, Factor: 2000, Floor: 99}).Counters(), Call: call, Max: cost(100),
			Expected: cost(100),
		})
		if err != nil {
			t.Fatal(err)
		}
		f.settle(t.Context(), h, 100)
	default:
		f.settle(t.Context(), f.hold(t.Context(), []Limit{l}, shape.Amount), shape.Amount)
	}
	f.copied("", replicaHas)
	span, step := time.Minute+each, time.Second
	if shape.Kind == Fixed {
		step *= 10
	}
	for passed := time.Duration(0); ; passed += step {
		if i := int(passed / (20 * time.Second)); passed%(20*time.Second) == 0 && i < len(list) {
			name += ", " + list[i].name
			span += list[i].apply(f, &l)
		}
		st, free := ask(f, l)
		if free {
			return
		}
		if left := span - passed; left <= 0 || st.Reset > left || st.Wait > left {
			t.Errorf("%s: after %s it resets in %s, wait %s; want at most %s", name, passed, st.Reset, st.Wait, left)
			return
		}
		f.pass(step)
	}
}

// TestOpenCallsAreFreeWhenTheyEnd: a concurrency limit depends on no clock.
func TestOpenCallsAreFreeWhenTheyEnd(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		for _, by := range []time.Duration{-time.Hour, -3 * time.Minute, time.Hour} {
			f := newFixture(t, rdb, Options{Lease: 48 * time.Hour})
			l := Limit{ID: "par", Subject: Org, Metric: Concurrency, Shape: Shape{Kind: Concurrent, Amount: 1}}
			h := f.hold(t.Context(), []Limit{l}, 1)
			f.pass(by)
			for range 10 {
				if e := f.refusedBy(t.Context(), l); e == nil || e.Binding.Wait > 48*time.Hour-min(by, 0) {
					t.Fatalf("clock by %s: with an open call got %+v, want a refusal", by, e)
				}
				f.pass(time.Second)
			}
			f.settle(t.Context(), h, 1)
			if e := f.refusedBy(t.Context(), l); e != nil {
				t.Errorf("clock by %s: after the call got %+v", by, e)
			}
		}
	})
}
