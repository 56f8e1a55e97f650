package calibration

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

func TestConverges(t *testing.T) {
	for _, s := range []synthetic{
		{ratio: 1.55, noise: 0.05, least: 50, most: 50_000},
		{ratio: 1.55, noise: 0.15, least: 50, most: 50_000},
		{ratio: 1.10, noise: 0.05, least: 50, most: 50_000},
		{ratio: 2.60, noise: 0.05, least: 50, most: 50_000},
		{ratio: 0.70, noise: 0.05, least: 50, most: 50_000},
		{ratio: 1.55, noise: 0.05, least: 800, most: 1000},
	} {
		t.Run(fmt.Sprintf("%.2f~%.2f", s.ratio, s.noise), func(t *testing.T) {
			both(t, func(t *testing.T, rdb *redis.Client) {
				f := newFixture(t, rdb, Options{})
				f.learn("v1", s, 1500)
				mean, hold := f.Input(claude, Prose)
				near(t, "mean", float64(mean), 1000*s.ratio, 0.03)
				if share := f.covered(s, 2000); share < 0.95 {
					t.Errorf("mean %d hold %d cover %.3f of further calls", mean, hold, share)
				}
				if limit := 1000 * s.ratio * (1 + 4*s.noise); float64(hold) > limit {
					t.Errorf("hold %d is far above what is needed, %.0f", hold, limit)
				}
			})
		})
	}
}

// TestBaseOfSmallPrompts has a provider with a hidden system prompt, which alone
// would make small prompts outliers.
func TestBaseOfSmallPrompts(t *testing.T) {
	for _, s := range []synthetic{
		{ratio: 1.15, noise: 0.05, base: 160, least: 20, most: 2000},
		{ratio: 1.55, noise: 0.05, base: 450, least: 20, most: 20_000},
		{ratio: 1.15, noise: 0.02, base: 160, least: 30, most: 31}, // sizes that tell nothing apart
	} {
		t.Run(fmt.Sprintf("%.2f+%.0f", s.ratio, s.base), func(t *testing.T) {
			f := newFixture(t, redistest.Start(t).Client(), Options{})
			f.learn("v1", s, 1000)
			if s.most > 100 {
				near(t, "base", float64(f.Base(claude, Prose)), s.base, 0.15)
				mean, _ := f.Input(claude, Prose)
				near(t, "mean", float64(mean), 1000*s.ratio, 0.05)
			}
			if share := f.covered(s, 2000); share < 0.95 {
				mean, hold := f.Input(claude, Prose)
				t.Errorf("%d + %d..%d per mille cover %.3f of further calls", f.Base(claude, Prose), mean, hold, share)
			}
		})
	}
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	f.learn("v1", synthetic{ratio: 1.55, noise: 0.1, least: 20, most: 20_000}, 1000)
	if b := f.Base(claude, Prose); b > 20 {
		t.Errorf("a base of %d tokens where there is none", b)
	}
}

func TestFirstObservations(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	if mean, hold := f.Input(claude, Prose); mean != 1550 || hold != 1900 {
		t.Errorf("without evidence %d and %d", mean, hold)
	}
	f.observe(claude, "v1", Prose, 1000, 1200)
	f.sync()
	if mean, hold := f.Input(claude, Prose); mean != 1533 || hold != 1867 { // (20 p + 1.2) / 21
		t.Errorf("after one call %d and %d", mean, hold)
	}
	for range trusted - 1 {
		f.observe(claude, "v1", Prose, 1000, 2500)
	}
	f.sync()
	if mean, hold := f.Input(claude, Prose); mean >= 2000 || hold < 2500 {
		t.Errorf("%d calls at 2.5 expect %d and hold %d", trusted-1, mean, hold)
	}
	if mean, hold := f.Input(claude, Code); mean != 1550 || hold != 1900 {
		t.Errorf("another class learned %d and %d", mean, hold)
	}
}

func TestVersionChangeStartsAnew(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, Options{})
		f.learn("claude-opus-4-8-20261001", synthetic{ratio: 1.2, noise: 0.02, least: 100, most: 5000}, 500)
		if mean, hold := f.Input(claude, Prose); mean > 1250 || hold > 1400 {
			t.Fatalf("learned %d and %d", mean, hold)
		}
		f.observe(claude, "claude-opus-4-8-20261101", Prose, 1000, 1200)
		f.sync()
		if mean, hold := f.Input(claude, Prose); mean != 1533 || hold != 1867 {
			t.Errorf("the new version starts from %d and %d", mean, hold)
		}
		if mean, _ := f.Input("claude-opus-4-8-20261001", Prose); mean > 1250 {
			t.Errorf("the old version, by its name, is forgotten: %d", mean)
		}
		f.observe(claude, "claude-opus-4-8-20261001", Prose, 1000, 1200)
		f.sync()
		if mean, _ := f.Input(claude, Prose); mean > 1250 {
			t.Errorf("the old version came back as %d", mean)
		}
	})
}

func TestOutliers(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	f.learn("v1", synthetic{ratio: 1.5, noise: 0.02, least: 1000, most: 50_000}, 200)
	mean, hold := f.Input(claude, Prose)
	for range 200 {
		f.observe(claude, "v1", Prose, 10_000, 1_000_000) // far more than any text
		f.observe(claude, "v1", Prose, 10_000, 2_999)
		f.observe(claude, "v1", Prose, 10_000, 0)
		f.observe(claude, "v1", Prose, 0, 100)
		f.observe(claude, "v1", Prose, 10_000, -5)
	}
	f.sync()
	if m, h := f.Input(claude, Prose); m != mean || h != hold {
		t.Errorf("outliers moved %d, %d to %d, %d", mean, hold, m, h)
	}
}

func TestFactorBounds(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{Cap: 2000})
	for round := range 60 {
		for range 20 {
			s := synthetic{ratio: 0.4 + 3*f.rnd.Float64(), noise: f.rnd.Float64(), least: 1, most: 100_000}
			x, y := s.draw(f.rnd)
			f.observe(claude, "v1", Class(f.rnd.IntN(3)), x, y)
		}
		f.sync()
		for class := range classes {
			mean, hold := f.Input(claude, class)
			if mean > hold || hold > 2000 || mean < 300 {
				t.Fatalf("round %d: %s has mean %d and hold %d", round, class, mean, hold)
			}
			expected, held := f.Tokens(claude, class, 777)
			if expected > held || held > perMille(777, 2000)+maxBase {
				t.Fatalf("round %d: %d expected, %d held", round, expected, held)
			}
		}
	}
}

// TestPublicTokenizers keeps OpenAI's models exact whatever is observed.
func TestPublicTokenizers(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	for range 100 {
		f.observe("gpt-4o", "gpt-4o-2024-08-06", Prose, 100, 290)
		f.observe("gpt-4o", "gpt-4o-2024-08-06", Prose, 1000, 2000)
	}
	f.sync()
	if expected, hold := f.Tokens("gpt-4o", Prose, 1001); expected != 1001 || hold != 1001 {
		t.Errorf("1001 tokens became %d and %d", expected, hold)
	}
	rows, err := f.List(t.Context())
	if err != nil || len(rows) != 1 || rows[0].Seen < 2000 || rows[0].Hold != 1000 || rows[0].N == 0 {
		t.Errorf("listed as %+v, error %v", rows, err)
	}
}

func TestOutput(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, Options{})
		if e, h := f.Output("acme", "ann", "m"); e != 0 || h != 0 {
			t.Errorf("%d and %d out of nothing", e, h)
		}
		for i := range 1000 {
			f.ObserveOutput("acme", "ann", "m", 100)
			if i%10 == 0 {
				f.ObserveOutput("acme", "bob", "m", 2000)
			}
			f.ObserveOutput("zeta", "zoe", "m", int64(300+f.rnd.IntN(400)))
			if i%50 == 49 {
				f.sync()
			}
		}
		f.ObserveOutput("acme", "new", "m", 7)
		f.sync()
		check := func(org, user string, expected, share float64, high int64) {
			t.Helper()
			e, h := f.Output(org, user, "m")
			near(t, org+" "+user, float64(e), expected, share)
			if h < high || h < e {
				t.Errorf("%s %s: high is %d, want at least %d", org, user, h, high)
			}
		}
		check("acme", "ann", 100, 0.01, 100)
		check("acme", "bob", 2000, 0.01, 2000)
		check("zeta", "zoe", 500, 0.1, 600)
		check("acme", "new", 100+1900/11, 0.4, 1000) // the org's: too few calls of the user
		check("none", "who", 400, 0.5, 500)          // everybody's
		if e, h := f.Output("acme", "ann", "other"); e != 0 || h != 0 {
			t.Errorf("another model: %d and %d", e, h)
		}
	})
}
