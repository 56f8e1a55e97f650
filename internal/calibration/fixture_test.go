package calibration

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

const (
	claude = "claude-opus-4-8" // prior 1550 and 1900
	house  = "acme"            // the org whose calls most tests observe
)

// fixture is a Calibration with a clock that only the test advances.
type fixture struct {
	*Calibration
	t   *testing.T
	at  time.Time
	rnd *rand.Rand
}

func newFixture(t *testing.T, rdb redis.UniversalClient, o Options) *fixture {
	f := &fixture{
		Calibration: New(redistest.DB(rdb), o), t: t, rnd: rand.New(rand.NewPCG(1, 2)),
		at: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
	}
	f.now = func() any { return f.at.UnixMicro() }
	return f
}

// sync advances the clock by ten seconds and shares the observations.
func (f *fixture) sync() {
	f.t.Helper()
	f.at = f.at.Add(10 * time.Second)
	if err := f.Sync(context.Background()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) observe(model, version string, class Class, estimated, actual int64) {
	f.ObserveInput(Sample{Org: house, Model: model, Version: version, Name: model, Class: class, Estimated: estimated, Actual: actual})
}

// synthetic is a synthetic tokenizer: actual = base + ratio * estimated, with noise.
type synthetic struct {
	ratio, noise float64
	base         float64
	least, most  float64 // sizes, evenly distributed in their logarithm
}

func (s synthetic) draw(r *rand.Rand) (estimated, actual int64) {
	x := math.Round(s.least * math.Pow(s.most/s.least, r.Float64()))
	y := s.base + s.ratio*x*math.Exp(s.noise*r.NormFloat64())
	return int64(x), int64(math.Round(y))
}

// learn observes n calls in rounds.
func (f *fixture) learn(version string, s synthetic, n int) {
	f.t.Helper()
	for i := range n {
		x, y := s.draw(f.rnd)
		f.observe(claude, version, Prose, x, y)
		if (i+1)%perRound == 0 || i == n-1 {
			f.sync()
		}
	}
}

// covered returns the share of further calls whose hold is enough.
func (f *fixture) covered(s synthetic, n int) float64 {
	ok := 0
	for range n {
		x, y := s.draw(f.rnd)
		if _, hold := f.Tokens(house, claude, Prose, x); hold >= y {
			ok++
		}
	}
	return float64(ok) / float64(n)
}

// near fails unless got is within a fraction of want.
func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*want {
		t.Errorf("%s is %.4g, want %.4g within %.0f %%", what, got, want, 100*share)
	}
}

// both runs a test on a real Redis and on miniredis.
func both(t *testing.T, test func(t *testing.T, rdb *redis.Client)) {
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Start(t).Client())
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		test(t, rdb)
	})
}
