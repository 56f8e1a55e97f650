package pricing

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawPrice draws an embedded model or an invented one with every kind of rule.
func drawPrice(t *rapid.T) *Price {
	c, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	when := time.Unix(rapid.Int64Range(date("2026-06-01T00:00:00Z").Unix(), date("2027-02-01T00:00:00Z").Unix()).Draw(t, "admitted"), 0)
	if rapid.Bool().Draw(t, "invented") {
		c, err = New("usd", []Entry{drawEntry(t)})
		if err != nil {
			t.Fatal(err)
		}
	}
	e := rapid.SampledFrom(c.Entries()).Draw(t, "model")
	p, err := c.Lookup(e.Provider, e.Model, when)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func drawEntry(t *rapid.T) Entry {
	e := Entry{Model: "m", Provider: "p"}
	edges := []int64{0}
	if rapid.Bool().Draw(t, "long") {
		edges = append(edges, rapid.Int64Range(1, 1_000_000).Draw(t, "edge"))
	}
	froms := []time.Time{{}, november, date("2027-01-01T00:00:00Z")}
	for _, from := range froms[:rapid.IntRange(1, 3).Draw(t, "periods")] {
		for _, tier := range []string{"", "slow", "quick"}[:rapid.IntRange(1, 3).Draw(t, "tiers")] {
			for _, edge := range edges {
				row := Row{EffectiveFrom: from, ServiceTier: tier, ContextOver: edge, Rates: drawRates(t)}
				e.Prices = append(e.Prices, row)
				if tier == "" {
					row.UTCHours, row.Rates = []Hours{{11 * 60, 13 * 60}}, drawRates(t)
					e.Prices = append(e.Prices, row)
				}
			}
		}
	}
	e.Multipliers = []Multiplier{
		{UTCHours: []Hours{{60, 240}, {23 * 60, 30}}, Times: drawFactor(t)},
		{ServiceTier: "priority", Times: drawFactor(t)},
		{Region: "any", Times: drawFactor(t)},
		{Batch: true, Times: drawFactor(t)},
	}
	return e
}

func drawFactor(t *rapid.T) Factor { return Factor(rapid.Int64Range(1, maxFactor/10).Draw(t, "times")) }

func drawRates(t *rapid.T) Rates {
	given := rapid.Custom(func(t *rapid.T) Rate {
		return Rate{Pico: Pico(rapid.Int64Range(0, 200_000_000).Draw(t, "pico")), Given: true}
	})
	perhaps := rapid.OneOf(rapid.Just(Rate{}), given)
	return Rates{
		Input: given.Draw(t, "input"), Output: given.Draw(t, "output"),
		CachedInput: perhaps.Draw(t, "cached"), CacheWrite: perhaps.Draw(t, "write"), CacheWrite1h: perhaps.Draw(t, "write1h"),
		ImageIn: perhaps.Draw(t, "image in"), ImageOut: perhaps.Draw(t, "image out"),
		AudioIn: perhaps.Draw(t, "audio in"), CachedAudioIn: perhaps.Draw(t, "cached audio"), AudioOut: perhaps.Draw(t, "audio out"),
		PerRequest: perhaps.Draw(t, "request"), PerToolCall: perhaps.Draw(t, "tool"),
		PerMinute: perhaps.Draw(t, "minute"), Characters: perhaps.Draw(t, "character"),
	}
}

func drawTerms(t *rapid.T) Terms {
	tier := rapid.SampledFrom([]string{"", "auto", "default", "flex", "priority", "fast", "slow", "quick", "unheard-of"})
	return Terms{
		ServiceTier: tier.Draw(t, "tier"),
		ProjectTier: tier.Draw(t, "project tier"),
		Batch:       rapid.Bool().Draw(t, "batch"),
		Region:      rapid.SampledFrom([]string{"", "us", "eu", "global"}).Draw(t, "region"),
	}
}

// drawUsage draws a usage of at most the given one in everything that a ceiling covers, with any
// cache classes.
func drawUsage(t *rapid.T, held Usage) Usage {
	upTo := func(name string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, name) }
	u := Usage{
		Input: upTo("input", held.Input), Output: upTo("output", held.Output),
		CacheWrite1h: upTo("write 1h", held.CacheWrite1h),
		AudioIn:      upTo("audio in", held.AudioIn), ImageIn: upTo("image in", held.ImageIn),
		AudioOut: upTo("audio out", held.AudioOut), ImageOut: upTo("image out", held.ImageOut),
		Requests: upTo("requests", held.Requests), ToolCalls: upTo("tool calls", held.ToolCalls),
		Images: upTo("images", held.Images), Characters: upTo("characters", held.Characters), AudioMillis: upTo("audio", held.AudioMillis),
	}
	u.CachedInput, u.CacheWrite = upTo("cached", 2*u.Input+1), upTo("written", 2*u.Input+1)
	u.CachedAudio = upTo("cached audio", 2*u.AudioIn+1)
	u.Reasoning = upTo("reasoning", 2*u.Output+1)
	return u
}

var most = Usage{
	Input: 1_200_000, CacheWrite1h: 1_200_000, AudioIn: 1_200_000, ImageIn: 1_200_000,
	Output: 400_000, AudioOut: 400_000, ImageOut: 400_000, Requests: 9, ToolCalls: 99,
	Images: 10, Characters: 4096, AudioMillis: 10_000_001,
}

func TestCeilingCoversCharge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, terms, held := drawPrice(t), drawTerms(t), drawUsage(t, most)
		terms.At = p.at.Add(time.Duration(rapid.Int64Range(-int64(50*time.Hour), int64(50*time.Hour)).Draw(t, "at")))
		ceiling, err := p.Ceiling(held, terms)
		if err != nil {
			t.Fatal(err)
		}
		used, settled := drawUsage(t, held), terms
		settled.At = terms.At.Add(time.Duration(rapid.Int64Range(0, int64(Horizon)).Draw(t, "later")))
		settled.ServiceTier = rapid.SampledFrom([]string{terms.ServiceTier, "default"}).Draw(t, "served at")
		charge, err := p.Charge(used, settled)
		if err != nil {
			t.Fatal(err)
		}
		if charge < 0 || charge > ceiling {
			t.Fatalf("held %v for %+v, charged %v for %+v", ceiling, held, charge, used)
		}
	})
}

func TestMoreCostsNoLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Only real models, because an invented long-context price may be lower.
		c, err := Embedded()
		if err != nil {
			t.Fatal(err)
		}
		e := rapid.SampledFrom(c.Entries()).Draw(t, "model")
		p, err := c.Lookup(e.Provider, e.Model, november)
		if err != nil {
			t.Fatal(err)
		}
		terms := drawTerms(t)
		less := drawUsage(t, Usage{Input: 1_000_000, Output: 200_000, Requests: 3, ToolCalls: 9})
		less.CachedInput, less.CacheWrite, less.CacheWrite1h = 0, 0, 0
		more := less
		more.Input += rapid.Int64Range(0, 500_000).Draw(t, "more input")
		more.Output += rapid.Int64Range(0, 500_000).Draw(t, "more output")
		more.ToolCalls++
		a, errA := p.Charge(less, terms)
		b, errB := p.Charge(more, terms)
		if errA != nil || errB != nil || b < a {
			t.Fatalf("%+v costs %v (%v), %+v costs %v (%v)", less, a, errA, more, b, errB)
		}
	})
}

// TestAbsurdUsage: whatever the numbers, a charge is in range or an overflow.
func TestAbsurdUsage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, terms := drawPrice(t), drawTerms(t)
		n := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{-1 << 63, -1, 0, 1, 1<<63 - 1}))
		u := Usage{
			Input: n.Draw(t, "input"), CachedInput: n.Draw(t, "cached"), CacheWrite: n.Draw(t, "write"), CacheWrite1h: n.Draw(t, "1h"),
			AudioIn: n.Draw(t, "audio in"), ImageIn: n.Draw(t, "image in"), Output: n.Draw(t, "output"), Reasoning: n.Draw(t, "reasoning"),
			AudioOut: n.Draw(t, "audio out"), ImageOut: n.Draw(t, "image out"), Requests: n.Draw(t, "requests"), ToolCalls: n.Draw(t, "tools"),
		}
		for _, f := range []func(Usage, Terms) (Nano, error){p.Charge, p.Ceiling} {
			got, err := f(u, terms)
			if got < 0 || got > MaxNano || (err != nil && (got != 0 || !errors.Is(err, ErrOverflow))) {
				t.Fatalf("%+v: %v, %v", u, got, err)
			}
		}
		clamped, _ := u.Clamp()
		if again, faults := clamped.Clamp(); again != clamped || len(faults) > 0 && !slices.Equal(faults, []string{"cache classes together"}) {
			t.Fatalf("clamping twice changes %+v to %+v (%v)", clamped, again, faults)
		}
	})
}

func TestOverflowIsAnError(t *testing.T) {
	top := Rate{Pico: maxTokenRate, Given: true}
	e := Entry{Model: "m", Prices: []Row{{Rates: Rates{Input: top, Output: top}}}, Multipliers: []Multiplier{
		{ServiceTier: "x", Times: maxFactor}, {Region: "x", Times: maxFactor}, {UTCHours: []Hours{{0, dayMinutes}}, Times: maxFactor},
	}}
	c, err := New("", []Entry{e})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Lookup("", "m", november)
	if err != nil {
		t.Fatal(err)
	}
	huge := Usage{Input: MaxCount, Output: MaxCount}
	for _, terms := range []Terms{{}, {ServiceTier: "x", Region: "x"}} {
		if n, err := p.Charge(huge, terms); !errors.Is(err, ErrOverflow) || n != 0 {
			t.Errorf("Charge = %v, %v", n, err)
		}
		if n, err := p.Ceiling(huge, terms); !errors.Is(err, ErrOverflow) || n != 0 {
			t.Errorf("Ceiling = %v, %v", n, err)
		}
	}
	if n, err := p.Charge(Usage{Input: 90}, Terms{}); err != nil || n != 9000*NanoPerUSD {
		t.Errorf("90 tokens at $1 x 100 = %v, %v", n, err)
	}
}

func TestClampReports(t *testing.T) {
	got, faults := Usage{Input: 10, CachedInput: 11, Output: -1, Reasoning: 5, ToolCalls: 1 << 40}.Clamp()
	want := Usage{Input: 10, CachedInput: 10, ToolCalls: MaxCount}
	if got != want || fmt.Sprint(faults) != "[output cached_input reasoning tool_calls]" {
		t.Errorf("clamped to %+v, faults %v", got, faults)
	}
	if _, faults := (Usage{Input: 10, CachedInput: 10, AudioIn: 10, Output: 3, Reasoning: 3}).Clamp(); faults != nil {
		t.Errorf("sane usage has faults %v", faults)
	}
}

// TestOverlappingClasses: classes may overlap, but no token is charged twice, and the most
// expensive interpretation is charged.
func TestOverlappingClasses(t *testing.T) {
	rate := func(s string) Rate {
		r, err := PerMillion(s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	c, err := New("", []Entry{{Model: "m", Prices: []Row{{Rates: Rates{
		Input: rate("2"), CachedInput: rate("1"), AudioIn: rate("40"), CachedAudioIn: rate("3"), Output: rate("8"), AudioOut: rate("80"),
	}}}}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Lookup("any", "m", november)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		u    Usage
		want Nano
	}{
		{Usage{Input: 100, AudioIn: 30, Output: 10, AudioOut: 4}, bill(t, "1", at{70, "2"}, at{30, "40"}, at{6, "8"}, at{4, "80"})},
		{Usage{Input: 100, CachedInput: 90, AudioIn: 30}, bill(t, "1", at{30, "40"}, at{70, "1"})},
		{Usage{Input: 1000, CachedInput: 800, AudioIn: 900, CachedAudio: 750}, bill(t, "1", at{50, "2"}, at{50, "1"}, at{150, "40"}, at{750, "3"})},
		{Usage{Input: 100, CachedInput: 100, CacheWrite: 100}, bill(t, "1", at{100, "2"})},
	} {
		if got, err := p.Charge(x.u, Terms{}); err != nil || got != x.want {
			t.Errorf("%+v: %v, %v; want %v", x.u, got, err, x.want)
		}
	}
}

func TestCeilingLooksAhead(t *testing.T) {
	u := Usage{Input: 1000, Output: 10}
	for _, x := range []struct {
		provider, model, when, times string
		terms                        Terms
		want                         []at
	}{
		{"deepseek", "deepseek-v4-pro", "2026-11-20T05:10:00Z", "2", Terms{}, []at{{1000, "0.66"}, {10, "1.98"}}},
		{"deepseek", "deepseek-v4-pro", "2026-11-20T04:30:00Z", "1", Terms{}, []at{{1000, "0.66"}, {10, "1.98"}}},
		{"deepseek", "deepseek-v4-pro", "2026-11-20T23:59:59Z", "1", Terms{}, []at{{1000, "0.66"}, {10, "1.98"}}},
		{"deepseek", "deepseek-v4-pro", "2026-11-21T00:00:00Z", "2", Terms{}, []at{{1000, "0.66"}, {10, "1.98"}}},
		{"google", "gemini-3.8-flash", "2026-12-31T23:30:00Z", "1", Terms{}, []at{{1000, "1.5"}, {10, "7.5"}}},
		{"google", "gemini-3.8-flash", "2026-12-31T22:30:00Z", "1", Terms{}, []at{{1000, "0.75"}, {10, "3.75"}}},
		{"openai", "gpt-6.1-sol", "2026-11-20T00:00:00Z", "1", Terms{}, []at{{1000, "2.5"}, {10, "10"}}}, // cache write
		{"openai", "gpt-6.1-sol", "2026-11-20T00:00:00Z", "1", Terms{ServiceTier: "flex"}, []at{{1000, "2.5"}, {10, "10"}}},
		{"openai", "gpt-6.1-sol", "2026-11-20T00:00:00Z", "2", Terms{ServiceTier: "priority"}, []at{{1000, "2.5"}, {10, "10"}}},
		{"openai", "gpt-6.1-sol", "2026-11-20T00:00:00Z", "2", Terms{ServiceTier: "auto", ProjectTier: "priority"}, []at{{1000, "2.5"}, {10, "10"}}},
		{"openai", "gpt-6.1-sol", "2026-11-20T00:00:00Z", "0.5", Terms{Batch: true}, []at{{1000, "2.5"}, {10, "10"}}},
		{"openai", "gpt-5", "2026-11-20T00:00:00Z", "1", Terms{}, []at{{1000, "1.25"}, {10, "10"}}},
	} {
		got, err := lookup(t, x.provider, x.model, date(x.when)).Ceiling(u, x.terms)
		if want := bill(t, x.times, x.want...); err != nil || got != want {
			t.Errorf("%s at %s, %+v: %v, %v; want %v", x.model, x.when, x.terms, got, err, want)
		}
	}
}
