package simulate_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/pricing"
)

func nano(n int64) pricing.Nano { return pricing.Nano(n) }

// history returns a few minutes of random calls of up to 60 each, with gaps of all lengths,
// some simultaneous.
func history(rng *rand.Rand, n int) []simulate.Call {
	var out []simulate.Call
	at := float64(rng.IntN(3000)) / 1000
	for range n {
		if rng.IntN(5) > 0 {
			at += float64(rng.IntN(1+rng.IntN(20_000))) / 1000
		}
		out = append(out, callAt(at, 1+rng.Int64N(60)))
	}
	return out
}

// oracle decides whether a call is within the limit, given the admitted calls before it.
type oracle func(before []simulate.Call, c simulate.Call) bool

// checkOracle replays random histories under a limit that refuses, and compares each decision
// with a textbook implementation.
func checkOracle(t *testing.T, shape budget.Shape, metric budget.Metric, fits oracle) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, uint64(len(shape.Kind))))
	l := limitOf(shape)
	l.Metric = metric
	refused := 0
	for h := range 60 {
		trace := traceOf(t, history(rng, 80)...)
		var before []simulate.Call
		for i, d := range decisions(t, trace, refusing(t, l)) {
			want := fits(before, d.Call)
			if got := d.Outcome == simulate.AtOnce; got != want {
				t.Fatalf("history %d, call %d at %s of %d: got admitted %v, want %v", h, i, d.Call.At, d.Call.Held,
					got, want)
			}
			if want {
				before = append(before, d.Call)
			} else {
				refused++
			}
		}
	}
	if refused < 100 {
		t.Errorf("got %d refusals in all histories, want 100 and more: the limit decides too little", refused)
	}
}

// sum adds up the admitted calls for which in returns true.
func sum(calls []simulate.Call, in func(simulate.Call) bool) int64 {
	total := int64(0)
	for _, c := range calls {
		if in(c) {
			total += int64(c.Held)
		}
	}
	return total
}

// An exact window admits a call if it and all calls in the window before it are within the
// amount.
func TestExactWindowAgreesWithTheTextbook(t *testing.T) {
	const width, amount = 30 * time.Second, 100
	checkOracle(t, budget.Shape{Kind: budget.ExactWindow, Amount: amount, Window: width}, budget.Cost,
		func(before []simulate.Call, c simulate.Call) bool {
			used := sum(before, func(b simulate.Call) bool { return b.At.After(c.At.Add(-width)) })
			return used+int64(c.Held) <= amount
		})
}

// A window in sixtieths never admits more than its amount in any window, and refuses nothing
// that an exact window longer by a sixtieth would admit.
func TestWindowIsSafeAndNearlyExact(t *testing.T) {
	const width, amount = time.Minute, 150
	rng := rand.New(rand.NewPCG(5, 5))
	for h := range 60 {
		var before []simulate.Call
		for i, d := range decisions(t, traceOf(t, history(rng, 80)...), refusing(t, limitOf(budget.Shape{Kind: budget.Window, Amount: amount, Window: width}))) {
			within := func(span time.Duration) int64 {
				return int64(d.Call.Held) + sum(before, func(b simulate.Call) bool {
					return b.At.After(d.Call.At.Add(-span))
				})
			}
			switch {
			case d.Outcome == simulate.AtOnce && within(width) > amount:
				t.Fatalf("history %d, call %d: admitted %d in a span of %s, want %d at most", h, i, within(width),
					width, amount)
			case d.Outcome != simulate.AtOnce && within(width+width/60) <= amount:
				t.Fatalf("history %d, call %d: refused at %d in a span of %s, want admitted up to %d", h, i,
					within(width+width/60), width+width/60, amount)
			}
			if d.Outcome == simulate.AtOnce {
				before = append(before, d.Call)
			}
		}
	}
}

// A calendar limit starts again with each period, in its time zone.
func TestCalendarAgreesWithTheTextbook(t *testing.T) {
	const amount = 100
	kathmandu, err := time.LoadLocation("Asia/Kathmandu") // UTC+5:45
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, layout string
		zone         *time.Location
	}{
		{"minute", "2006-01-02 15:04", time.UTC},
		{"hour", "2006-01-02 15", kathmandu},
	} {
		shape := budget.Shape{Kind: budget.Calendar, Amount: amount, Calendar: c.name, Location: c.zone}
		checkOracle(t, shape, budget.Cost, func(before []simulate.Call, call simulate.Call) bool {
			period := call.At.In(c.zone).Format(c.layout)
			used := sum(before, func(b simulate.Call) bool { return b.At.In(c.zone).Format(c.layout) == period })
			return used+int64(call.Held) <= amount
		})
	}
}

// A bucket starts full, is drained by calls and refills steadily up to its capacity.
func TestBucketAgreesWithTheTextbook(t *testing.T) {
	const capacity = 200 // refilled by 1 every 250 ms
	shape := budget.Shape{Kind: budget.Bucket, Amount: capacity, Refill: 4, Per: time.Second}
	checkOracle(t, shape, budget.Cost,
		func(before []simulate.Call, c simulate.Call) bool {
			const unit = 250_000 // us to refill 1
			level, last := int64(capacity*unit), begin
			for _, b := range before {
				level = min(level+b.At.Sub(last).Microseconds(), capacity*unit) - int64(b.Held)*unit
				last = b.At
			}
			level = min(level+c.At.Sub(last).Microseconds(), capacity*unit)
			return level >= int64(c.Held)*unit
		})
}

// A bucket without refill is prepaid money: what is spent does not come back.
func TestPrepaidBucketAgreesWithTheTextbook(t *testing.T) {
	const capacity = 500
	shape := budget.Shape{Kind: budget.Bucket, Amount: capacity}
	checkOracle(t, shape, budget.Cost, func(before []simulate.Call, c simulate.Call) bool {
		return sum(before, func(simulate.Call) bool { return true })+int64(c.Held) <= capacity
	})
}

// A limit on requests counts each call as one, whatever it costs.
func TestRequestsAgreeWithTheTextbook(t *testing.T) {
	const width, amount = 30 * time.Second, 3
	checkOracle(t, budget.Shape{Kind: budget.ExactWindow, Amount: amount, Window: width}, budget.Requests,
		func(before []simulate.Call, c simulate.Call) bool {
			n := 1
			for _, b := range before {
				if b.At.After(c.At.Add(-width)) {
					n++
				}
			}
			return n <= amount
		})
}

// A limit on open calls counts those that have started and not ended.
func TestConcurrencyAgreesWithTheTextbook(t *testing.T) {
	const amount = 3
	l := budget.Limit{ID: "open", Subject: budget.Org, Metric: budget.Concurrency, Shape: budget.Shape{Kind: budget.Concurrent, Amount: amount}}
	rng := rand.New(rand.NewPCG(9, 9))
	refused := 0
	for h := range 60 {
		calls := history(rng, 80)
		for i := range calls {
			calls[i].Took = time.Duration(rng.IntN(30_000)) * time.Millisecond
		}
		var before []simulate.Call
		for i, d := range decisions(t, traceOf(t, calls...), refusing(t, l)) {
			open := 0
			for _, b := range before {
				if b.At.Add(b.Took).After(d.Call.At) {
					open++
				}
			}
			want := open < amount
			if got := d.Outcome == simulate.AtOnce; got != want {
				t.Fatalf("history %d, call %d with %d open: got admitted %v, want %v", h, i, open, got, want)
			}
			if want {
				before = append(before, d.Call)
			} else {
				refused++
			}
		}
	}
	if refused < 100 {
		t.Errorf("got %d refusals, want 100 and more", refused)
	}
}

// The unused part of a hold is released when the call ends, not earlier.
func TestHoldIsGivenBackAtTheEnd(t *testing.T) {
	const width, amount = 60 * time.Second, 100
	l := limitOf(budget.Shape{Kind: budget.ExactWindow, Amount: amount, Window: width})
	first := callAt(0, 100)
	first.Cost, first.Took = 30, 10*time.Second
	list := decisions(t, traceOf(t, first, callAt(9.9, 70), callAt(10.1, 71), callAt(10.2, 70)), refusing(t, l))
	checkOutcomes(t, list, "immediate", "refused", "refused", "immediate")
}
