package calibration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/tokenizer"
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
			f := newFixture(t, redistest.Start(t).Client(), Options{})
			f.learn("v1", s, 1500)
			mean, hold := f.Input(house, claude, Prose)
			near(t, "mean", float64(mean), 1000*s.ratio, max(0.03, 0.3*s.noise))
			share := 0.0
			for range 20 { // the estimates change while they are measured
				f.learn("v1", s, perRound)
				share += f.covered(s, 500) / 20
			}
			if share < 0.965 {
				t.Errorf("mean %d hold %d cover %.3f of further calls, want 0.965", mean, hold, share)
			}
			if limit := max(floor, 1000*s.ratio*(1+4*s.noise)); float64(hold) > limit {
				t.Errorf("hold is %d, want at most %.0f", hold, limit)
			}
		})
	}
}

// TestBaseOfSmallPrompts has a provider with a hidden system prompt that by itself would make
// small prompts outliers.
func TestBaseOfSmallPrompts(t *testing.T) {
	for _, s := range []synthetic{
		{ratio: 1.15, noise: 0.05, base: 160, least: 20, most: 2000},
		{ratio: 1.55, noise: 0.05, base: 450, least: 20, most: 20_000},
		{ratio: 1.15, noise: 0.02, base: 160, least: 30, most: 31}, // sizes too similar to separate base and ratio
	} {
		t.Run(fmt.Sprintf("%.2f+%.0f", s.ratio, s.base), func(t *testing.T) {
			f := newFixture(t, redistest.Start(t).Client(), Options{})
			f.learn("v1", s, 1000)
			if s.most > 100 {
				near(t, "base", float64(f.Base(house, claude, Prose)), s.base, 0.15)
				mean, _ := f.Input(house, claude, Prose)
				near(t, "mean", float64(mean), 1000*s.ratio, 0.05)
			}
			if share := f.covered(s, 2000); share < 0.95 {
				mean, hold := f.Input(house, claude, Prose)
				t.Errorf("%d + %d..%d per mille cover %.3f of further calls", f.Base(house, claude, Prose), mean, hold, share)
			}
		})
	}
}

// TestNoBase detects no base where there is only noise.
func TestNoBase(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	wrong := 0
	for range 100 {
		f.learn("v1", synthetic{ratio: 1.55, noise: 0.15, least: 300, most: 3000}, 20)
		if f.Base(house, claude, Prose) > 0 {
			wrong++
		}
	}
	if wrong > 5 {
		t.Errorf("a base in %d rounds of 100", wrong)
	}
}

// TestBaseStaysWithVersion does not subtract one version's base from another's bill.
func TestBaseStaysWithVersion(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	f.learn("v1", synthetic{ratio: 1.55, noise: 0.02, base: 450, least: 20, most: 20_000}, 500)
	f.learn("v2", synthetic{ratio: 1.55, least: 1000, most: 1001}, 50)
	if r := f.find(claude); r.Version != "v2" || r.Seen < 1545 || r.Seen > 1555 {
		t.Errorf("got %+v, want v2 with about 1550 per mille seen", r)
	}
}

func TestClassify(t *testing.T) {
	for text, want := range map[string]Class{
		"":   Prose,
		"hi": Prose,
		"What is the capital of France, and how many people live there?":                                                  Prose,
		"Der schnelle braune Fuchs springt \u00fcber den faulen Hund.":                                                    Prose,
		"2024-01-01,12.5,33\n2024-01-02,13.5,34\n":                                                                        Code,
		`{"id":123,"name":"foo","tags":["a","b"],"price":12.5}`:                                                           Code,
		strings.Repeat("if (a[i] != b->c) { x += f(y, &z); }\n", 10):                                                      Code,
		"\u041a\u0430\u043a\u0430\u044f \u0441\u0435\u0433\u043e\u0434\u043d\u044f \u043f\u043e\u0433\u043e\u0434\u0430?": NonLatin,
		"Translate: \u4eca\u5929\u5929\u6c14\u5f88\u597d":                                                                 NonLatin,
	} {
		if got := Classify(tokenizer.CountClasses(tokenizer.O200k, []byte(text))); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

func TestFirstObservations(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	if mean, hold := f.Input(house, claude, Prose); mean != 1550 || hold != 1900 {
		t.Errorf("without evidence %d and %d", mean, hold)
	}
	f.observe(claude, "v1", Prose, 1000, 1200)
	f.sync()
	if mean, hold := f.Input(house, claude, Prose); mean != 1533 || hold != 1867 { // (20 p + 1.2) / 21
		t.Errorf("after one call %d and %d", mean, hold)
	}
	for range trusted - 1 {
		f.observe(claude, "v1", Prose, 1000, 2500)
	}
	f.sync()
	if mean, hold := f.Input(house, claude, Prose); mean >= 2000 || hold < 2500 {
		t.Errorf("%d calls at 2.5 expect %d and hold %d", trusted-1, mean, hold)
	}
	if mean, hold := f.Input(house, claude, Code); mean != 1550 || hold != 1900 {
		t.Errorf("another class learned %d and %d", mean, hold)
	}
	for n := range trusted {
		f.observe(claude, "v1", NonLatin, 1000, 2500)
		f.sync()
		if _, hold := f.Input(house, claude, NonLatin); (hold >= 2500) != (n+1 == trusted) {
			t.Errorf("%d calls at 2.5 hold %d", n+1, hold)
		}
	}
}

// TestOldEvidence: the prior never loses all of its weight, and evidence expires.
func TestOldEvidence(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	f.learn("v1", synthetic{ratio: 1.2, noise: 0.02, least: 100, most: 5000}, maxN+100)
	if n := f.rows()[0].N; n != maxN {
		t.Errorf("%d observations count", n)
	}
	f.at = f.at.Add(31 * 24 * time.Hour)
	f.observe(claude, "v1", Prose, 1000, 1200)
	f.sync()
	if r := f.rows()[0]; r.N != 1 || !r.Since.Equal(f.at) {
		t.Errorf("a month later %+v", r)
	}
}

// TestFactorsOf: the factors are ordered whatever an entry says.
func TestFactorsOf(t *testing.T) {
	prior := factors{mean: 1150, hold: 1600}
	for _, e := range []entry{
		{n: 2000, mean: 9e6, q: 9e6}, {n: 2000, mean: 1e6, q: -1e6}, {n: 1, mean: -9e6, q: -9e6}, {n: 2000, mean: 9e6, q: 0},
	} {
		if f := factorsOf(prior, &e, 3000); f.mean > f.hold || f.hold > 3000 || f.mean < 0 {
			t.Errorf("%+v of %+v", f, e)
		}
	}
}

func TestObservation(t *testing.T) {
	for _, c := range []struct {
		estimated, actual, base int64
		ratio, ok               bool
	}{
		{1000, 1000, 0, true, true},
		{1000, 300, 0, true, true},
		{1000, 299, 0, false, false},
		{1000, 4000, 0, true, true},
		{1000, 4001, 0, false, true},
		{1000, 5000, 0, false, true}, // may have a base of 1,000
		{1000, 5001, 0, false, false},
		{20, 180, 0, false, true},
		{20, 180, 160, true, true},
		{20, 180, 180, false, true},
		{0, 5, 0, false, false},
		{5, 0, 0, false, false},
	} {
		text, ratio, ok := observation(nil, c.estimated, c.actual, c.base)
		if ratio != c.ratio || ok != c.ok || (len(text) > 0) != ok {
			t.Errorf("%d of %d, base %d: %q %v %v", c.actual, c.estimated, c.base, text, ratio, ok)
		}
	}
}

func TestVersionChangeStartsAnew(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, Options{})
		f.learn("claude-opus-4-8-20261001", synthetic{ratio: 1.2, noise: 0.02, least: 100, most: 5000}, 500)
		if mean, hold := f.Input(house, claude, Prose); mean > 1250 || hold > 1400 {
			t.Fatalf("learned %d and %d", mean, hold)
		}
		f.observe(claude, "claude-opus-4-8-20261101", Prose, 1000, 1200)
		f.sync()
		if mean, hold := f.Input(house, claude, Prose); mean != 1533 || hold != 1867 {
			t.Errorf("the new version starts from %d and %d", mean, hold)
		}
		if mean, _ := f.Input(house, "claude-opus-4-8-20261001", Prose); mean > 1250 {
			t.Errorf("the old version, by its name, is forgotten: %d", mean)
		}
		f.observe(claude, "claude-opus-4-8-20261001", Prose, 1000, 1200)
		f.sync()
		if mean, _ := f.Input(house, claude, Prose); mean > 1250 {
			t.Errorf("the old version came back as %d", mean)
		}
	})
}

func TestOutliers(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	f.learn("v1", synthetic{ratio: 1.5, noise: 0.02, least: 1000, most: 50_000}, 200)
	mean, hold := f.Input(house, claude, Prose)
	for range 200 {
		f.observe(claude, "v1", Prose, 10_000, 1_000_000) // much more than any text
		f.observe(claude, "v1", Prose, 10_000, 2_999)
		f.observe(claude, "v1", Prose, 10_000, 0)
		f.observe(claude, "v1", Prose, 0, 100)
		f.observe(claude, "v1", Prose, 10_000, -5)
	}
	f.sync()
	if m, h := f.Input(house, claude, Prose); m != mean || h != hold {
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
			mean, hold := f.Input(house, claude, class)
			if mean > hold || hold > 2000 || mean < 300 {
				t.Fatalf("round %d: %s has mean %d and hold %d", round, class, mean, hold)
			}
			expected, held := f.Tokens(house, claude, class, 777)
			if expected > held || held > perMille(777, 2000)+maxBase {
				t.Fatalf("round %d: %d expected, %d held", round, expected, held)
			}
		}
	}
}

// TestPublicTokenizers: OpenAI's models stay exact whatever is observed.
func TestPublicTokenizers(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	for range 100 {
		f.observe("gpt-4o", "gpt-4o-2024-08-06", Prose, 100, 290)
		f.observe("gpt-4o", "gpt-4o-2024-08-06", Prose, 1000, 2000)
	}
	f.sync()
	if expected, hold := f.Tokens(house, "gpt-4o", Prose, 1001); expected != 1001 || hold != 1001 {
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
			if i%5 == 4 {
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
		check("acme", "new", 100+1900/11, 0.4, 1000) // the org's, because the user has too few calls
		check("none", "who", 400, 0.5, 500)          // of all orgs
		if e, h := f.Output("acme", "ann", "other"); e != 0 || h != 0 {
			t.Errorf("another model: %d and %d", e, h)
		}
	})
}

// TestOutputWithoutOrg uses the fallback when an org's own entry was dropped.
func TestOutputWithoutOrg(t *testing.T) {
	c := New(nil, Options{})
	user, _ := parseEntry("1,1,9,3000000,0,3000000,9,20000")
	all, _ := parseEntry("1,1,9,5000000,0,5000000,9,150000")
	c.state.Store(newSnapshot(nil, map[string]entry{
		outputEntry(outputKey{"acme", "ann", "m"}): user, outputEntry(outputKey{"", "", "m"}): all,
	}, 3000))
	for name, want := range map[string]int64{"ann": 20, "bob": 150} {
		if e, _ := c.Output("acme", name, "m"); e != want {
			t.Errorf("%s: %d, want %d", name, e, want)
		}
	}
}
