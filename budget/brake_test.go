package budget

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redistest"
)

func brake(t *testing.T, rule BrakeRule) *Brake {
	t.Helper()
	b, err := NewBrake(Brake{ID: "wild", Subject: "run", Action: BrakeStop, Rule: rule})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBrakeJudge: each rule fires at the first call that is too much, and usual is the larger of the mean
// of the past and that of the others.
func TestBrakeJudge(t *testing.T) {
	used := func(amounts ...int64) (out []Status) {
		for _, n := range amounts {
			out = append(out, Status{Used: n + 1000, Held: 1000})
		}
		return out
	}
	spend := BrakeRule{Window: time.Minute, Factor: 2500, Floor: 100}
	for _, c := range []struct {
		name     string
		rule     BrakeRule
		counters []Status
		over     bool
		usual    int64
	}{
		{"as many calls as allowed", BrakeRule{Window: time.Minute, Calls: 3}, []Status{{Used: 3, Held: 1}}, false, 0},
		{"one call more", BrakeRule{Window: time.Minute, Calls: 3}, []Status{{Used: 4, Held: 1}}, true, 0},
		{"one repetition more", BrakeRule{Window: time.Minute, Repeats: 3}, []Status{{Used: 4, Held: 1}}, true, 0},
		{"the floor", spend, append(used(100, 100, 100), Status{Used: 1}), false, 0},
		{"above the floor, alone", spend, append(used(101, 101, 101), Status{Used: 1}), true, 0},
		{"usual by the past", spend, append(used(1000, 1000+24*400, 1000), Status{Used: 1}), false, 400},
		{"more than by the past", spend, append(used(1001, 1001+24*400, 1001), Status{Used: 1}), true, 400},
		{"usual by the others", spend, append(used(1000, 1000, 1000+2*400), Status{Used: 3}), false, 400},
		{"more than by the others", spend, append(used(1001, 1001, 1001+2*400), Status{Used: 3}), true, 400},
		{"the larger mean", spend, append(used(1000, 1000+24*100, 1000+400), Status{Used: 2}), false, 400},
	} {
		seen, fires, over := brake(t, c.rule).Judge(c.counters)
		if fires != c.over || over != c.over || int64(seen.Usual) != c.usual {
			t.Errorf("%s: got %v, %v with usual %d, want %v with %d", c.name, fires, over, seen.Usual, c.over, c.usual)
		}
	}
	for _, rule := range []BrakeRule{{Window: time.Minute, Calls: 3}, {Window: time.Minute, Repeats: 3}} {
		_, fires, over := brake(t, rule).Judge([]Status{{Used: 9, Held: 7}})
		if fires || !over {
			t.Errorf("%+v, with open calls: got fires %v, over %v, want false and true", rule, fires, over)
		}
		seen, _, _ := brake(t, rule).Judge([]Status{{Used: 9, Held: 6}})
		if text := seen.Text(true); seen.Calls+seen.Repeats != 3 || !strings.HasSuffix(text, "in 1m, more than 3 with the next") {
			t.Errorf("%+v: got %d calls as %q, want the 3 that were charged", rule, seen.Calls+seen.Repeats, text)
		}
	}
}

// TestBrakesCountAnswers: of what a call can end as, brakes count it only if the provider answered, and
// limits on requests count it but for a failed attempt of a job, which is repeated.
func TestBrakesCountAnswers(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		b := brake(t, BrakeRule{Window: time.Hour, Factor: 2000, Floor: 1})
		calls := brake(t, BrakeRule{Window: time.Hour, Calls: 100})
		calls.counters[0].ID = "brake.calls"
		limit := Limit{ID: "requests", Subject: Org, Metric: Requests, Shape: hour(1000)}
		counters := append(append([]Limit{limit}, b.Counters()...), calls.Counters()...)
		for i, c := range []struct {
			what                   string
			job, void, lost        bool
			failed                 bool
			requests, spent, calls int64 // what it adds
		}{
			{what: "an answer", requests: 1, spent: 60, calls: 1},
			{what: "the answer of a job", job: true, requests: 1, spent: 60, calls: 1},
			{what: "a failed call", failed: true, requests: 1},
			{what: "a failed attempt of a job", job: true, failed: true},
			{what: "a call that was not sent", void: true},
			{what: "a call of a process that died", lost: true, requests: 1},
		} {
			call := f.in(100).Call
			call.User, call.Labels = "ann", "run=a"
			if c.job {
				call.JobID = fmt.Sprint("job_", i)
			}
			before, err := f.Peek(ctx, counters, call)
			if err != nil {
				t.Fatal(err)
			}
			h, err := f.Hold(ctx, Terms{Limits: counters, Call: call, Max: cost(100), Expected: cost(100)})
			switch {
			case err != nil:
			case c.void:
				err = f.Void(ctx, h)
			case c.lost:
				f.Store.leases.untrack(h)
				f.pass(2 * time.Minute)
				_, err = f.Expiry.Sweep(ctx, f.org)
			default:
				_, err = f.Settle(ctx, h, Settlement{Actual: cost(60), Failed: c.failed})
			}
			if err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
			after, err := f.Peek(ctx, counters, call)
			if err != nil {
				t.Fatal(err)
			}
			for k, want := range map[int]int64{0: c.requests, 1: c.spent, 2: c.spent, 3: c.spent, 5: c.calls} {
				if got := after[k].Used - before[k].Used; got != want || after[k].Held != 0 {
					t.Errorf("%s: counter %d got %d more and holds %d, want %d and 0", c.what, k, got, after[k].Held, want)
				}
			}
		}
	})
}

// TestBrakeCounters: through random holds, settles and voids of several runs, the counters in Redis and
// those of a Virtual are equal, and both judge alike. Nothing is left in Redis without a time to live of at
// most 25 windows.
func TestBrakeCounters(t *testing.T) {
	seed, rdb := randtest.Seed(t), shared(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	org, now := "acme", start
	store := New(redistest.DB(rdb), Options{})
	store.clock.fake = func() int64 { return now.UnixMicro() }
	virtual := NewVirtual(Options{})
	brakes := []*Brake{
		brake(t, BrakeRule{Window: time.Minute, Factor: 2000, Floor: 50}),
		brake(t, BrakeRule{Window: 10 * time.Minute, Repeats: 3}), brake(t, BrakeRule{Window: time.Hour, Calls: 20}),
	}
	brakes[1].counters[0].ID, brakes[2].counters[0].ID = "brake.again", "brake.many"
	var limits []Limit
	for _, b := range brakes {
		limits = append(limits, b.Counters()...)
	}
	type open struct {
		real *Hold
		twin *VirtualHold
	}
	var holds []open
	fired := map[int]int{}
	for i := range 400 {
		now = now.Add(time.Duration(rng.IntN(20_000)) * time.Millisecond)
		if len(holds) > 0 && rng.IntN(2) == 0 {
			k := rng.IntN(len(holds))
			one := holds[k]
			holds = append(holds[:k], holds[k+1:]...)
			if rng.IntN(4) == 0 {
				if err := store.Void(t.Context(), one.real); err != nil {
					t.Fatal(err)
				}
				virtual.Void(now.UnixMicro(), one.twin)
				continue
			}
			actual := cost(int64(rng.IntN(100)))
			settle, failed := virtual.Settle, rng.IntN(5) == 0
			if failed {
				settle = virtual.SettleFailed
			}
			if _, err := store.Settle(t.Context(), one.real, Settlement{Actual: actual, Failed: failed}); err != nil {
				t.Fatal(err)
			}
			settle(now.UnixMicro(), one.twin, actual)
			continue
		}
		labels := ledger.Labels(fmt.Sprintf("run=r%d", rng.IntN(4)))
		c := ledger.Call{ID: idAt(now, i), Attempt: 1, Org: org, Labels: labels, Request: fmt.Sprint(rng.IntN(3))}
		h, err := store.Hold(t.Context(), Terms{Limits: limits, Call: c, Max: cost(100), Expected: cost(100)})
		if err != nil {
			t.Fatal(err)
		}
		on, err := virtual.Bind(limits, c)
		if err != nil {
			t.Fatal(err)
		}
		twin, refused := virtual.Hold(now.UnixMicro(), on, cost(100), cost(100))
		if refused != nil {
			t.Fatal(refused)
		}
		holds = append(holds, open{h, twin})
		if len(h.Statuses) > 0 {
			t.Fatalf("counters are shown: %v", h.Statuses)
		}
		want := virtual.Peek(now.UnixMicro(), on)
		for k, got := range h.Counters {
			if got.Used != want[k].Used || got.Held != want[k].Held {
				t.Fatalf("step %d, counter %d: Redis has %d, %d held; the twin %d, %d held", i, k, got.Used, got.Held,
					want[k].Used, want[k].Held)
			}
		}
		at := 0
		for k, b := range brakes {
			n := len(b.Counters())
			if _, fires, _ := b.Judge(h.Counters[at : at+n]); fires {
				fired[k]++
			}
			at += n
		}
	}
	for k := range brakes {
		if fired[k] == 0 {
			t.Errorf("brake %d never fired", k)
		}
	}
	keys, err := rdb.Keys(t.Context(), "lg:{"+org+"}:l:*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("got %d counters: %v", len(keys), err)
	}
	for _, key := range keys {
		if life := rdb.PTTL(t.Context(), key).Val(); life <= 0 || life > 2*time.Hour {
			t.Errorf("%s lives for %s", key, life)
		}
	}
}

// TestBrakesBesideFiftyLimits: the counters of as many brakes as an org can have fit beside as many limits
// as a call can have.
func TestBrakesBesideFiftyLimits(t *testing.T) {
	store := New(redistest.DB(shared(t)), Options{})
	var limits []Limit
	for i := range maxLimits {
		limits = append(limits, costLimit(fmt.Sprintf("limit%d", i), Org, hour(1000)))
	}
	for i := range 8 {
		b, err := NewBrake(Brake{
			ID: fmt.Sprintf("brake%d", i), Subject: "run", Action: BrakeStop, Rule: BrakeRule{Window: time.Minute, Factor: 2000},
		})
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, b.Counters()...)
	}
	terms := Terms{Limits: limits, Call: ledger.Call{ID: idAt(time.Now(), 1), Org: "acme", User: "ann", Labels: "run=a"}, Max: cost(300)}
	h, err := store.Hold(t.Context(), terms)
	if err != nil || len(h.Statuses) != maxLimits || len(h.Counters) != 32 {
		t.Fatalf("got %+v, %v; want a hold on %d limits and 32 counters", h, err, maxLimits)
	}
	r, err := store.Settle(t.Context(), h, Settlement{Actual: cost(100)})
	if err != nil || r.Charged != 100 {
		t.Errorf("got %+v, %v; want 100 charged", r, err)
	}
	terms.Call.ID = idAt(time.Now(), 2)
	terms.Limits = append([]Limit{costLimit("more", Org, hour(1000))}, limits...)
	if _, err := store.Hold(t.Context(), terms); err == nil {
		t.Error("a call is held on 51 limits")
	}
}
