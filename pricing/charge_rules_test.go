package pricing_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

var noon = time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)

func catalogueOf(t *testing.T, text string) *pricing.Catalogue {
	t.Helper()
	c, err := pricing.Parse([]byte("models:\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func priceOf(t *testing.T, text string) *pricing.Price {
	t.Helper()
	p, err := catalogueOf(t, text).Lookup("", "m", noon)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// everyClass has a separate price for each class: $1 per million is 1,000 nano-USD for a thousand
// tokens, and so on.
const everyClass = `
- model: m
  prices:
    - {input: 1, cached_input: 0.5, cache_write: 2, cache_write_1h: 3, image_in: 4, audio_in: 5,
       output: 10, image_out: 40, audio_out: 50, per_request: 0.000001, per_tool_call: 0.01, per_minute: 0.006, characters: 15}
`

// TestChargeByClass: each class of tokens and each fee is charged at its own price, once.
func TestChargeByClass(t *testing.T) {
	p := priceOf(t, everyClass)
	for _, c := range []struct {
		name  string
		usage pricing.Usage
		want  pricing.Nano
	}{
		{"nothing", pricing.Usage{}, 0},
		{"input", pricing.Usage{Input: 1000}, 1_000_000},
		{"cached", pricing.Usage{Input: 1000, CachedInput: 1000}, 500_000},
		{"a part is cached", pricing.Usage{Input: 1000, CachedInput: 400}, 800_000},
		{"written to the cache", pricing.Usage{Input: 1000, CacheWrite: 1000}, 2_000_000},
		{"written for an hour", pricing.Usage{Input: 1000, CacheWrite1h: 1000}, 3_000_000},
		{"images seen", pricing.Usage{Input: 1000, ImageIn: 1000}, 4_000_000},
		{"sound heard", pricing.Usage{Input: 1000, AudioIn: 1000}, 5_000_000},
		{"output", pricing.Usage{Output: 1000}, 10_000_000},
		{"reasoning is output", pricing.Usage{Output: 1000, Reasoning: 900}, 10_000_000},
		{"images made", pricing.Usage{Output: 1000, ImageOut: 1000}, 40_000_000},
		{"sound made", pricing.Usage{Output: 1000, AudioOut: 500}, 30_000_000},
		{"requests", pricing.Usage{Requests: 3}, 3_000},
		{"tool calls", pricing.Usage{ToolCalls: 2}, 20_000_000},
		{"a minute", pricing.Usage{AudioMillis: 60_000}, 6_000_000},
		{"half a minute", pricing.Usage{AudioMillis: 30_000}, 3_000_000},
		{"characters", pricing.Usage{Characters: 100}, 1_500_000},
	} {
		got, err := p.Charge(c.usage, pricing.Terms{})
		if err != nil || got != c.want {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

// TestClassesWithoutAPrice: a class without a price costs what its whole does.
func TestClassesWithoutAPrice(t *testing.T) {
	p := priceOf(t, "- {model: m, prices: [{input: 1, cache_write: 2, output: 10}]}\n")
	for _, c := range []struct {
		name  string
		usage pricing.Usage
		want  pricing.Nano
	}{
		{"cached as input", pricing.Usage{Input: 1000, CachedInput: 1000}, 1_000_000},
		{"for an hour as written", pricing.Usage{Input: 1000, CacheWrite1h: 1000}, 2_000_000},
		{"images as input", pricing.Usage{Input: 1000, ImageIn: 1000}, 1_000_000},
		{"sound as output", pricing.Usage{Output: 1000, AudioOut: 1000}, 10_000_000},
		{"no fee", pricing.Usage{Requests: 5, ToolCalls: 5}, 0},
	} {
		got, err := p.Charge(c.usage, pricing.Terms{})
		if err != nil || got != c.want {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

// TestRoundingIsUpAndOnce: a charge is rounded up, once and not for each class.
func TestRoundingIsUpAndOnce(t *testing.T) {
	p := priceOf(t, "- {model: m, prices: [{input: 0.0004, cached_input: 0.0003, output: 0.0003}]}\n")
	for _, c := range []struct {
		usage pricing.Usage
		want  pricing.Nano
	}{
		{pricing.Usage{Input: 1}, 1},                                // 0.4
		{pricing.Usage{Input: 5}, 2},                                // 2.0
		{pricing.Usage{Input: 6}, 3},                                // 2.4
		{pricing.Usage{Input: 2, CachedInput: 1, Output: 1}, 1},     // 0.4 + 0.3 + 0.3
		{pricing.Usage{Input: 2, CachedInput: 1, Output: 2}, 2},     // 1.3
		{pricing.Usage{Input: 10_000_000}, 4_000_000},               // exact
		{pricing.Usage{Input: 10_000_001}, 4_000_001},               // 4,000,000.4
		{pricing.Usage{Input: 20, CachedInput: 10, Output: 10}, 10}, // 4 + 3 + 3
	} {
		got, err := p.Charge(c.usage, pricing.Terms{})
		if err != nil || got != c.want {
			t.Errorf("%+v: got %d, %v, want %d", c.usage, got, err, c.want)
		}
	}
}

const tiered = `
- model: m
  names: [m-latest]
  prefixes: ["m-2026"]
  multipliers:
    - {batch: true, times: 0.5}
    - {region: eu, times: 1.1}
    - {region: us, batch: true, times: 3}
  prices:
    - {input: 2, output: 10}
    - {context_over: 100, input: 4, output: 20}
    - {service_tier: priority, input: 6, output: 30}
    - {service_tier: priority, context_over: 100, input: 8, output: 40}
    - {effective_from: 2027-01-01, input: 1, output: 5}
`

// TestWhichPriceApplies: the cost of a hundred output tokens shows which price applied: 1,000,000
// is $10 per million.
func TestWhichPriceApplies(t *testing.T) {
	p := priceOf(t, tiered)
	for _, c := range []struct {
		name  string
		input int64
		terms pricing.Terms
		want  pricing.Nano
	}{
		{"the default", 0, pricing.Terms{}, 1_000_000},
		{"default by name", 0, pricing.Terms{ServiceTier: "standard"}, 1_000_000},
		{"priority", 0, pricing.Terms{ServiceTier: "priority"}, 3_000_000},
		{"priority in capitals", 0, pricing.Terms{ServiceTier: "PRIORITY"}, 3_000_000},
		{"auto is the project's", 0, pricing.Terms{ServiceTier: "auto", ProjectTier: "priority"}, 3_000_000},
		{"auto without a project's", 0, pricing.Terms{ServiceTier: "auto"}, 1_000_000},
		{"a tier of its own goes before the project's", 0, pricing.Terms{ServiceTier: "default", ProjectTier: "priority"}, 1_000_000},
		{"an unknown tier is the dearest", 0, pricing.Terms{ServiceTier: "turbo"}, 3_000_000},
		{"flex is never dearer than the default", 0, pricing.Terms{ServiceTier: "flex"}, 1_000_000},
		{"batch", 0, pricing.Terms{Batch: true}, 500_000},
		{"batch replaces the tier", 0, pricing.Terms{Batch: true, ServiceTier: "priority"}, 500_000},
		{"a region", 0, pricing.Terms{Region: "eu"}, 1_100_000},
		{"a region without a price", 0, pricing.Terms{Region: "asia"}, 1_000_000},
		{"global is none", 0, pricing.Terms{Region: "global"}, 1_000_000},
		{"batch in a region", 0, pricing.Terms{Batch: true, Region: "eu"}, 550_000},
		{"multipliers multiply", 0, pricing.Terms{Batch: true, Region: "us"}, 1_500_000},
		{"the edge of the context", 100, pricing.Terms{}, 1_000_000 + 200_000},
		{"beyond the edge all is dearer", 101, pricing.Terms{}, 2_000_000 + 404_000},
		{"beyond it at a tier", 101, pricing.Terms{ServiceTier: "priority"}, 4_000_000 + 808_000},
		{
			"the last second of a price", 0,
			pricing.Terms{At: time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)},
			1_000_000,
		},
		{"the first of the next", 0, pricing.Terms{At: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}, 500_000},
		{"a tier that the next price does not have", 0, pricing.Terms{ServiceTier: "priority", At: time.Date(2027,
			1, 1, 0, 0, 0, 0, time.UTC)}, 500_000},
	} {
		got, err := p.Charge(pricing.Usage{Input: c.input, Output: 100}, c.terms)
		if err != nil || got != c.want {
			t.Errorf("%s: got %d, %v, want %d", c.name, got, err, c.want)
		}
	}
}

// TestHours: hours are of the UTC day, from the first minute to before the last.
func TestHours(t *testing.T) {
	p := priceOf(t, `
- model: m
  prices:
    - {input: 1, output: 10}
    - {utc_hours: ["22:00-02:00", "12:30-13:00"], input: 1, output: 5}
`)
	for text, want := range map[string]pricing.Nano{
		"00:00": 500, "01:59": 500, "02:00": 1000, "12:29": 1000, "12:30": 500, "12:59": 500, "13:00": 1000, "21:59": 1000, "22:00": 500,
	} {
		at, err := time.Parse("15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		when := time.Date(2026, 11, 18, at.Hour(), at.Minute(), 0, 0, time.UTC).In(time.FixedZone("x", 5*3600))
		got, err := p.Charge(pricing.Usage{Output: 100}, pricing.Terms{At: when})
		if err != nil || got != want*1000 {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want*1000)
		}
	}
}

// TestCeiling: a hold covers what a call may be charged: no discount, the most expensive context
// tier it reaches, and the prices of the next hour.
func TestCeiling(t *testing.T) {
	p := priceOf(t, tiered)
	for _, c := range []struct {
		name  string
		usage pricing.Usage
		terms pricing.Terms
		want  pricing.Nano
	}{
		{"the default", pricing.Usage{Input: 10, Output: 100}, pricing.Terms{}, 1_020_000},
		{"no cache discount", pricing.Usage{Input: 10, CachedInput: 10, Output: 100}, pricing.Terms{}, 1_020_000},
		{"beyond the edge", pricing.Usage{Input: 101, Output: 100}, pricing.Terms{}, 2_404_000},
		{
			"flex may be served at the default",
			pricing.Usage{Output: 100},
			pricing.Terms{ServiceTier: "flex"},
			1_000_000,
		},
		{"an unknown tier", pricing.Usage{Output: 100}, pricing.Terms{ServiceTier: "turbo"}, 3_000_000},
		{"just before a cheaper price", pricing.Usage{Output: 100}, pricing.Terms{At: time.Date(2026, 12, 31, 23,
			30, 0, 0, time.UTC)}, 1_000_000},
		{
			"after it",
			pricing.Usage{Output: 100},
			pricing.Terms{At: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)},
			500_000,
		},
	} {
		got, err := p.Ceiling(c.usage, c.terms)
		if err != nil || got != c.want {
			t.Errorf("%s: got %d, %v, want %d", c.name, got, err, c.want)
		}
	}
}

// TestCeilingCoversTheDefaultTier: an answer may be served at the default tier whatever tier was
// requested, so a hold covers that too.
func TestCeilingCoversTheDefaultTier(t *testing.T) {
	p := priceOf(t, "- {model: m, prices: [{input: 2, output: 10}, {service_tier: flex, input: 1, output: 5}]}\n")
	usage, flex := pricing.Usage{Output: 100}, pricing.Terms{ServiceTier: "flex"}
	ceiling, err := p.Ceiling(usage, flex)
	if err != nil || ceiling != 1_000_000 {
		t.Errorf("got %d held, %v, want 1000000", ceiling, err)
	}
	charge, err := p.Charge(usage, flex)
	if err != nil || charge != 500_000 {
		t.Errorf("got %d charged, %v, want 500000", charge, err)
	}
}

// TestNames: a price is found by its name, another name, or a prefix.
func TestNames(t *testing.T) {
	c := catalogueOf(t, tiered)
	for model, want := range map[string]bool{
		"m": true, "m-latest": true, "m-2026-01-01": true, "m-2025": false,
		"M": false, "": false, "m-latest-x": false,
	} {
		p, err := c.Lookup("anyone", model, noon)
		if got := err == nil; got != want {
			t.Errorf("%s: got found %v, want %v", model, got, want)
		}
		if err == nil && p.Model != "m" {
			t.Errorf("%s: got booked under %s, want m", model, p.Model)
		}
	}
}

// TestPriceInTheFuture: a model whose first price begins later has no price yet; the error says
// when it will.
func TestPriceInTheFuture(t *testing.T) {
	c := catalogueOf(t, "- {model: m, prices: [{effective_from: 2027-01-01, input: 1, output: 2}]}\n")
	_, err := c.Lookup("", "m", noon)
	unknown, ok := errors.AsType[*pricing.UnknownModelError](err)
	if !ok || unknown.NotBefore.Format(time.DateOnly) != "2027-01-01" {
		t.Errorf("got %v, want no price before 2027-01-01", err)
	}
	_, err = c.Lookup("", "m", time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Errorf("got %v on the day, want a price", err)
	}
}

// TestOverflow: an amount that is too large to be counted exactly is an error, never a small
// charge.
func TestOverflow(t *testing.T) {
	p := priceOf(t, "- {model: m, prices: [{input: 1000000, output: 1000000, per_tool_call: 1000}]}\n")
	for _, c := range []struct {
		usage pricing.Usage
		want  pricing.Nano
		over  bool
	}{
		{pricing.Usage{Input: 9_007_199}, 9_007_199 * pricing.NanoPerUSD, false}, // a dollar each
		{pricing.Usage{Input: 9_007_200}, 0, true},
		{pricing.Usage{Input: 1 << 62, Output: 1 << 62}, 0, true},
		{pricing.Usage{ToolCalls: 9_007}, 9_007_000 * pricing.NanoPerUSD, false},
		{pricing.Usage{ToolCalls: 9_008}, 0, true},
		{pricing.Usage{Input: -5}, 0, false},
	} {
		got, err := p.Charge(c.usage, pricing.Terms{})
		if got != c.want || errors.Is(err, pricing.ErrOverflow) != c.over || (err != nil) != c.over {
			t.Errorf("%+v: got %d, %v, want %d, overflow %v", c.usage, got, err, c.want, c.over)
		}
	}
}

// TestSplitByClass: the parts of a charge are by class and add up to the charge.
func TestSplitByClass(t *testing.T) {
	got, err := priceOf(t, everyClass).Split(pricing.Usage{
		Input: 1000, CachedInput: 100, CacheWrite: 200, CacheWrite1h: 300, Output: 500, AudioOut: 100, ToolCalls: 1,
	}, pricing.Terms{})
	want := pricing.Split{Input: 400_000, CachedInput: 50_000, CacheWrite: 1_300_000, Output: 9_000_000, Fees: 10_000_000}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got.Total() != 20_750_000 {
		t.Errorf("got total %d, want 20750000", got.Total())
	}
}

// TestExplainNames: a bill names what it counted, by which tier, and where it guessed.
func TestExplainNames(t *testing.T) {
	p := priceOf(t, tiered)
	for _, c := range []struct {
		terms   pricing.Terms
		tier    string
		assumed bool
		factors int
		charge  pricing.Nano
	}{
		{pricing.Terms{}, "", false, 0, 1_000_000},
		{pricing.Terms{ServiceTier: "priority"}, "priority", false, 0, 3_000_000},
		{pricing.Terms{ServiceTier: "turbo"}, "priority", true, 0, 3_000_000},
		{pricing.Terms{Batch: true, Region: "eu"}, "", false, 2, 550_000},
	} {
		b, err := p.Explain(pricing.Usage{Output: 100}, c.terms)
		if err != nil || b.Tier != c.tier || b.Assumed != c.assumed || len(b.Multipliers) != c.factors ||
			b.Charge != c.charge {
			t.Errorf("%+v: got %+v, %v, want %+v", c.terms, b, err, c)
		}
		if len(b.Tokens) != 1 || b.Tokens[0].Name != "output" || b.Tokens[0].Count != 100 {
			t.Errorf("%+v: got lines %+v, want 100 of output", c.terms, b.Tokens)
		}
	}
}

// TestClamp: usage out of range is clamped, and each field that was out of range is named.
func TestClamp(t *testing.T) {
	for _, c := range []struct {
		usage pricing.Usage
		want  pricing.Usage
		names string
	}{
		{pricing.Usage{Input: 5, CachedInput: 5, Output: 5}, pricing.Usage{Input: 5, CachedInput: 5, Output: 5}, ""},
		{pricing.Usage{Input: -1, Output: -1}, pricing.Usage{}, "input output"},
		{pricing.Usage{Input: pricing.MaxCount + 1}, pricing.Usage{Input: pricing.MaxCount}, "input"},
		{pricing.Usage{Input: 5, CachedInput: 6}, pricing.Usage{Input: 5, CachedInput: 5}, "cached_input"},
		{pricing.Usage{Output: 5, Reasoning: 9}, pricing.Usage{Output: 5, Reasoning: 5}, "reasoning"},
		{pricing.Usage{ToolCalls: -3}, pricing.Usage{}, "tool_calls"},
	} {
		got, names := c.usage.Clamp()
		if got != c.want || strings.Join(names, " ") != c.names {
			t.Errorf("%+v: got %+v and %q, want %+v and %q", c.usage, got, names, c.want, c.names)
		}
	}
}
