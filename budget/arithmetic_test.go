package budget

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRefillIsExact: a bucket's refill is exact even when products far exceed 2^53, in one step or
// in many. Sizes are drawn by bit length.
func TestRefillIsExact(t *testing.T) {
	rdb := shared(t)
	ctx := t.Context()
	beyond := 0
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 1))
		draw := func(limit int64) int64 {
			return 1 + rng.Int64N(min(limit, 1<<(1+rng.IntN(52))))
		}
		f := newFixture(t, rdb, Options{})
		shape := Shape{
			Kind: Bucket, Amount: MaxAmount, Refill: draw(MaxAmount),
			Per: time.Duration(draw(maxPer.Microseconds())) * time.Microsecond,
		}
		limits := []Limit{costLimit("b", Org, shape)}
		m := newModel(shape, f.opts.Lease)
		hold := func(n int64) {
			t.Helper()
			f.hold(ctx, limits, n)
			m.charge(f.now.Load(), "", n, true)
			f.used(ctx, limits, pair(m.sums(f.now.Load())))
		}
		hold(draw(MaxAmount / 2))
		for i := range 6 {
			// Advance by part of the time in which the bucket drains completely, or nearly
			// completely.
			used, _ := m.sums(f.now.Load())
			all := new(big.Int).Mul(big.NewInt(used), big.NewInt(shape.Per.Microseconds()))
			all.Div(all, big.NewInt(shape.Refill))
			span := int64(1 << 47) // four years
			if all.IsInt64() {
				span = min(span, all.Int64())
			}
			e := rng.Int64N(span/3 + 2)
			if rng.IntN(3) == 0 {
				e = span - e/8
			}
			if units, _ := shape.rate(); float64(e)*float64(units) > 1<<53 {
				beyond++
			}
			f.now.Add(e)
			f.used(ctx, limits, pair(m.sums(f.now.Load())))
			hold(int64(i)) // writes the fraction
		}
	}
	if beyond < 400 {
		t.Fatalf("only %d refills had products beyond 2^53", beyond)
	}
}

func pair(a, b int64) [2]int64 { return [2]int64{a, b} }

// TestBucketWaitIsExact: the wait of a refused call ends at the first microsecond at which it fits.
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
