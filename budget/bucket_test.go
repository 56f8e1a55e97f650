package budget

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/pricing"
)

const usd = 1_000_000_000 // nano-USD

func bucket(amount, refill int64, per time.Duration) []Limit {
	return []Limit{costLimit("b", Org, Shape{Kind: Bucket, Amount: amount, Refill: refill, Per: per})}
}

// TestBucketOfConcurrentCalls: a hundred concurrent calls that hold a hundred times what they cost
// are counted at what they cost. Calls that start far apart, in an empty bucket, may together be
// counted too high by what drains in 3 s; counted one by one it would be 10 s.
func TestBucketOfConcurrentCalls(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		for _, apart := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second} {
			ctx := t.Context()
			f := newFixture(t, rdb, Options{})
			limits := bucket(1000*usd, 50*usd, time.Hour)
			m := newModel(limits[0].Shape, f.opts.Lease)
			calls := int(min(100, 1+10*time.Second/max(1, apart)))
			var holds []*Hold
			var marks []*mark
			settle := func(i int) {
				f.settle(ctx, holds[i], usd/100)
				m.regrade(f.now.Load(), "", marks[i:i+1], usd, usd/100)
			}
			for i := range 200 {
				if i >= calls {
					settle(i - calls)
				}
				holds = append(holds, f.hold(ctx, limits, usd))
				marks = append(marks, m.charge(f.now.Load(), "", usd, true))
				f.pass(apart)
			}
			f.pass(10*time.Second - time.Duration(calls)*apart)
			for i := 200 - calls; i < 200; i++ {
				settle(i)
			}
			list, err := f.Peek(ctx, limits, f.call())
			if err != nil {
				t.Fatal(err)
			}
			used, _ := m.sums(f.now.Load())
			t.Logf("%v apart: used %v, exactly %v", apart, pricing.Nano(list[0].Used), pricing.Nano(used))
			most := used + keptDips
			if apart == 100*time.Millisecond {
				most += 3 * 50 * usd / 3600
			}
			if got := list[0].Used; got < used || got > most || list[0].Held != 0 {
				t.Errorf("%v apart: used %d held %d, exactly %d", apart, got, list[0].Held, used)
			}
		}
	})
}

// TestBucketVoidLeavesNoTrace: a voided hold leaves no trace, however little has drained.
func TestBucketVoidLeavesNoTrace(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		limits := bucket(10*777, 1, 30*24*time.Hour)
		for range 20 {
			h := f.hold(ctx, limits, 777)
			f.pass(3 * time.Second)
			if err := f.Void(ctx, h); err != nil {
				t.Fatal(err)
			}
			f.used(ctx, limits, [2]int64{0, 0})
		}
		var holds []*Hold
		for i := range 10 {
			holds = append(holds, f.hold(ctx, limits, 777))
			f.used(ctx, limits, [2]int64{int64(i+1) * 777, int64(i+1) * 777})
		}
		f.pass(time.Hour)
		for i, h := range holds {
			if err := f.Void(ctx, h); err != nil {
				t.Fatal(err)
			}
			left := int64(9-i) * 777
			f.used(ctx, limits, [2]int64{left, left})
		}
	})
}

// manyCalls keeps up to most calls of a bucket open at a time and compares it with the replay after
// each step: exactly if exact is true, otherwise it must never count less. It returns the largest
// overcount.
func manyCalls(t *testing.T, rdb *redis.Client, sc scripts, seed uint64, most, steps int) (over int64, err error) {
	type call struct {
		h *Hold
		m *mark
		n int64
	}
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(seed, 5))
	f := newFixture(t, rdb, Options{})
	f.runner.scripts = sc
	limits := bucket(MaxAmount, 1+rng.Int64N(3000), time.Second)
	m := newModel(limits[0].Shape, f.opts.Lease)
	var open []call
	for step := range steps {
		f.now.Add(rng.Int64N(20_000))
		at := f.now.Load()
		switch k := rng.IntN(max(1, len(open))); {
		case len(open) < most && rng.IntN(2) == 0:
			n := 1 + rng.Int64N(300)
			open = append(open, call{f.hold(ctx, limits, n), m.charge(at, "", n, true), n})
		case len(open) > 0:
			if rng.IntN(2) == 0 {
				k = 0 // the oldest
			}
			c := open[k]
			open = append(open[:k], open[k+1:]...)
			want := rng.Int64N(1 + c.n/[]int64{1, 10, 100}[rng.IntN(3)])
			f.settle(ctx, c.h, want)
			m.regrade(at, "", []*mark{c.m}, c.n, want)
		}
		list, err := f.Peek(ctx, limits, f.call())
		if err != nil {
			return 0, err
		}
		used, held := m.sums(at)
		got := list[0]
		if got.Used < used || got.Used > used && !m.coarse {
			return 0, fmt.Errorf("step %d: used %d, exactly %d", step, got.Used, used)
		}
		if !m.coarse && got.Held != held {
			return 0, fmt.Errorf("step %d: held %d, exactly %d", step, got.Held, held)
		}
		over = max(over, got.Used-used)
	}
	return over, nil
}

func TestBucketOfManyCalls(t *testing.T) {
	rdb := shared(t)
	for _, most := range []int{6, 12, 40, 150} {
		var worst int64
		for seed := range uint64(randtest.Rounds(2, 200)) {
			over, err := manyCalls(t, rdb, loaded, seed, most, 400)
			if err != nil {
				t.Fatalf("%d calls at once, seed %d: %v", most, seed, err)
			}
			worst = max(worst, over)
		}
		t.Logf("%d calls at once: %d too much at most", most, worst)
	}
}

// Mistakes that short histories with few calls do not reveal.
func TestManyCallsNotice(t *testing.T) {
	rdb := shared(t)
	notice(t, 40, []mistake{
		{"refund of all", "local i, least, g = first(st, place + 0)", "local i, least, g = first(st, place + 0)\n        least = st.used", 1},
		{"charges that leave no dip", "if t ~= place then", "if t == '0' then", 1},
		{"dips joined for nothing", "return whole + floor(-x / p)", "return whole + 0", 11},
	}, func(sc scripts, i int) error {
		_, err := manyCalls(t, rdb, sc, uint64(i), []int{6, 40, 150}[i%3], 400)
		return err
	})
}

// TestRefillAppliesFromItsFirstCall: a new refill applies from the first call that is held or
// refused under it. It does not apply to earlier time, and the ends of older calls do not bring the
// old refill back.
func TestRefillAppliesFromItsFirstCall(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		at := func(refill int64) []Limit {
			return []Limit{costLimit("b", Org, Shape{Kind: Bucket, Amount: 1000, Refill: refill, Per: time.Hour})}
		}
		ctx, f := t.Context(), newFixture(t, rdb, Options{Lease: 24 * time.Hour})
		old := f.hold(ctx, at(10), 1000)
		other := f.hold(ctx, at(10), 0)
		f.pass(10 * time.Hour)
		f.used(ctx, at(100), [2]int64{900, 900})
		if _, err := f.Hold(ctx, Terms{Limits: at(100), Call: f.call(), Max: cost(200), Expected: cost(200)}); !errors.As(err, new(*ExceededError)) {
			t.Fatalf("hold of 200 with 900 of 1000 used: %v", err)
		}
		f.pass(time.Hour)
		f.used(ctx, at(100), [2]int64{800, 800})
		f.settle(ctx, other, 50) // started under the old refill
		f.pass(time.Hour)
		f.used(ctx, at(100), [2]int64{750, 750})
		f.settle(ctx, old, 1000)
		f.pass(time.Hour)
		f.hold(ctx, at(1), 0) // lowered
		f.pass(100 * time.Hour)
		f.used(ctx, at(1), [2]int64{550, 0})
		if ttl := rdb.PTTL(ctx, ledger.Key(f.org, f.limitKey(at(1)[0]))).Val(); ttl < 550*time.Hour {
			t.Errorf("a bucket that drains for 550 h is in a key that lives %s", ttl)
		}
	})
}

// TestRefillOfAFullBucket: a full bucket whose new refill lets it drain does drain.
func TestRefillOfAFullBucket(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx, f := t.Context(), newFixture(t, rdb, Options{})
		shape := Shape{Kind: Bucket, Amount: 1000}
		f.settle(ctx, f.hold(ctx, []Limit{costLimit("b", Org, shape)}, 1000), 1000)
		shape.Refill, shape.Per = 10, time.Hour
		limits := []Limit{costLimit("b", Org, shape)}
		var e *ExceededError
		if _, err := f.Hold(ctx, Terms{Limits: limits, Call: f.call(), Max: cost(10), Expected: cost(10)}); !errors.As(err, &e) || e.Binding.Wait != time.Hour {
			t.Fatalf("hold in a full bucket: %v", err)
		}
		f.pass(time.Hour)
		f.hold(ctx, limits, 10)
	})
}

func (f *fixture) limitKey(l Limit) string { return l.stateFor(f.call(), f.opts.Lease).Key }
