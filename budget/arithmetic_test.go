package budget

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A bucket's refill is exact where products are far beyond 2^53, in one step or
// in many.
func TestRefillIsExact(t *testing.T) {
	rdb := shared(t)
	ctx := t.Context()
	rapid.Check(t, func(rt *rapid.T) {
		f := newFixture(t, rdb, Options{})
		shape := Shape{
			Kind: Bucket, Amount: MaxAmount,
			Refill: rapid.Int64Range(1, 1<<rapid.IntRange(1, 51).Draw(rt, "refill bits")).Draw(rt, "refill"),
			Per:    time.Duration(rapid.Int64Range(1, maxPer.Microseconds()).Draw(rt, "per")) * time.Microsecond,
		}
		if rapid.Bool().Draw(rt, "whole days") {
			shape.Per = shape.Per.Truncate(24*time.Hour) + 24*time.Hour
			shape.Per = min(shape.Per, maxPer)
		}
		limits := []Limit{costLimit("b", Org, shape)}
		m := newModel(shape, f.opts.Lease)
		used := rapid.Int64Range(1, MaxAmount/2).Draw(rt, "used")
		f.hold(ctx, limits, used)
		m.charge(f.now.Load(), "", used, true)
		// Time in which about `used` drains, in pieces.
		whole := new(big.Int).Mul(big.NewInt(used), big.NewInt(shape.Per.Microseconds()))
		whole.Div(whole, big.NewInt(shape.Refill))
		span := int64(1 << 40)
		if whole.IsInt64() {
			span = min(span, whole.Int64())
		}
		for i := range rapid.IntRange(1, 6).Draw(rt, "steps") {
			f.now.Add(rapid.Int64Range(0, span/2+1).Draw(rt, "elapsed"))
			f.used(ctx, limits, pair(m.sums(f.now.Load())))
			n := int64(i)
			f.hold(ctx, limits, n) // writes the fraction
			m.charge(f.now.Load(), "", n, true)
			f.used(ctx, limits, pair(m.sums(f.now.Load())))
		}
	})
}

func pair(a, b int64) [2]int64 { return [2]int64{a, b} }

// The wait of a refused call is the first microsecond at which it fits.
func TestBucketWaitIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.Int64Range(1, 1<<52).Draw(t, "units")
		micros := rapid.Int64Range(1, 1<<43).Draw(t, "micros")
		fraction := rapid.Int64Range(0, micros-1).Draw(t, "fraction")
		n := rapid.Int64Range(1, 1<<52).Draw(t, "n")
		e := drained(n, fraction, units, micros, 0)
		enough := func(e int64) bool {
			x := new(big.Int).Mul(big.NewInt(e), big.NewInt(units))
			x.Add(x, big.NewInt(fraction))
			return x.Cmp(new(big.Int).Mul(big.NewInt(n), big.NewInt(micros))) >= 0
		}
		if e < 1<<62 && (!enough(e) || e > 0 && enough(e-1)) {
			t.Fatalf("%d units at %d/%d + %d: %d us", n, units, micros, fraction, e)
		}
	})
}
