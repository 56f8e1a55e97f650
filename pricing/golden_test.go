package pricing

import (
	"encoding/csv"
	"math/big"
	"os"
	"strconv"
	"testing"
	"time"
)

// november is the time of most of these cases: after every past change and before the announced
// ones, in a cheap DeepSeek hour.
var november = date("2026-11-20T12:00:00Z")

func date(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

// at is one term of a bill: a number of tokens at a price in USD per 1M.
type at struct {
	tokens int64
	price  string
}

// bill adds the terms, scales them and rounds up to a nano-USD, in rational numbers.
func bill(t testing.TB, times string, terms ...at) Nano {
	t.Helper()
	sum := new(big.Rat)
	for _, term := range terms {
		price, ok := new(big.Rat).SetString(term.price)
		if !ok {
			t.Fatalf("price %q", term.price)
		}
		sum.Add(sum, price.Mul(price, new(big.Rat).SetInt64(term.tokens)))
	}
	factor, ok := new(big.Rat).SetString(times)
	if !ok {
		t.Fatalf("factor %q", times)
	}
	sum.Mul(sum, factor)
	sum.Mul(sum, big.NewRat(1000, 1)) // USD per 1M tokens -> nano-USD
	q, rem := new(big.Int).QuoRem(sum.Num(), sum.Denom(), new(big.Int))
	if rem.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return Nano(q.Int64())
}

func lookup(t testing.TB, provider, model string, when time.Time) *Price {
	t.Helper()
	c, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Lookup(provider, model, when)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGoldenCharges(t *testing.T) {
	type c = struct {
		name, provider, model string
		when                  string // "" is November
		usage                 Usage
		terms                 Terms
		times                 string
		want                  []at
	}
	tier := func(s string) Terms { return Terms{ServiceTier: s} }
	for _, x := range []c{
		// Context tiers, at the edges as encoded in the feeds. The whole request is repriced.
		{"6.1-sol at edge", "openai", "gpt-6.1-sol", "", Usage{Input: 272000, Output: 100}, Terms{}, "1", []at{{272000, "2"}, {100, "10"}}},
		{"6.1-sol over edge", "openai", "gpt-6.1-sol", "", Usage{Input: 272001, Output: 100}, Terms{}, "1", []at{{272001, "4"}, {100, "15"}}},
		{"6.1-sol over edge, cached and written", "openai", "gpt-6.1-sol", "", Usage{Input: 300000, CachedInput: 200000, CacheWrite: 50000, Output: 7}, Terms{}, "1", []at{{50000, "4"}, {200000, "0.2"}, {50000, "5"}, {7, "15"}}},
		{"6-astra at edge", "openai", "gpt-6-astra", "", Usage{Input: 271999, Output: 1}, Terms{}, "1", []at{{271999, "10"}, {1, "50"}}},
		{"6-astra over edge", "openai", "gpt-6-astra", "", Usage{Input: 272000, Output: 1}, Terms{}, "1", []at{{272000, "20"}, {1, "75"}}},
		{"6-luna at edge", "openai", "gpt-6-luna", "", Usage{Input: 272000, Output: 3}, Terms{}, "1", []at{{272000, "0.1"}, {3, "0.5"}}},
		{"6-luna over edge", "openai", "gpt-6-luna", "", Usage{Input: 272001, CachedInput: 272001, Output: 3}, Terms{}, "1", []at{{272001, "0.02"}, {3, "0.75"}}},
		{"5.5-pro over edge has no cache price", "openai", "gpt-5.5-pro", "", Usage{Input: 272000, CachedInput: 1000, Output: 3}, Terms{}, "1", []at{{272000, "60"}, {3, "270"}}},
		{"5.4 over edge", "openai", "gpt-5.4", "", Usage{Input: 400000, CachedInput: 399999, Output: 3}, Terms{}, "1", []at{{1, "5"}, {399999, "0.5"}, {3, "22.5"}}},
		{"haiku-5-5 at edge", "anthropic", "claude-haiku-5-5", "", Usage{Input: 100000, Output: 10}, Terms{}, "1", []at{{100000, "0.1"}, {10, "0.5"}}},
		{"haiku-5-5 over edge", "anthropic", "claude-haiku-5-5", "", Usage{Input: 100001, Output: 10}, Terms{}, "1", []at{{100001, "0.5"}, {10, "2.5"}}},
		{"haiku-5-5 over edge by cache tokens", "anthropic", "claude-haiku-5-5", "", Usage{Input: 100001, CachedInput: 60000, CacheWrite: 20000, CacheWrite1h: 20000, Output: 10}, Terms{}, "1", []at{{1, "0.5"}, {60000, "0.05"}, {20000, "0.625"}, {20000, "1.00"}, {10, "2.5"}}},
		{"sonnet-4-5 over edge", "anthropic", "claude-sonnet-4-5", "", Usage{Input: 200001, CachedInput: 1, Output: 9}, Terms{}, "1", []at{{200000, "6"}, {1, "0.6"}, {9, "22.5"}}},
		{"gemini-2.5-pro at edge", "google", "gemini-2.5-pro", "", Usage{Input: 200000, Output: 10}, Terms{}, "1", []at{{200000, "1.25"}, {10, "10"}}},
		{"gemini-2.5-pro over edge", "google", "gemini-2.5-pro", "", Usage{Input: 200001, Output: 10}, Terms{}, "1", []at{{200001, "2.5"}, {10, "15"}}},
		{"grok-4.6 at edge", "x-ai", "grok-4.6", "", Usage{Input: 199999, CachedInput: 9, Output: 10}, Terms{}, "1", []at{{199990, "2"}, {9, "0.5"}, {10, "6"}}},
		{"grok-4.6 over edge", "x-ai", "grok-4.6", "", Usage{Input: 200000, CachedInput: 9, Output: 10}, Terms{}, "1", []at{{199991, "4"}, {9, "1"}, {10, "12"}}},
		{"minimax-m3 over edge", "minimax", "minimax-m3", "", Usage{Input: 512001, CachedInput: 1, Output: 1}, Terms{}, "1", []at{{512000, "0.6"}, {1, "0.12"}, {1, "2.4"}}},

		// Cache classes.
		{"sonnet-5-5 all classes", "anthropic", "claude-sonnet-5-5", "", Usage{Input: 1000, CachedInput: 400, CacheWrite: 300, CacheWrite1h: 200, Output: 50}, Terms{}, "1", []at{{100, "2"}, {400, "0.1"}, {300, "2.5"}, {200, "4"}, {50, "10"}}},
		{"fable-5-1 cache read at 2.5 %", "anthropic", "claude-fable-5-1", "", Usage{Input: 1000, CachedInput: 999}, Terms{}, "1", []at{{1, "10"}, {999, "0.25"}}},
		{"opus-4-1 1h write", "anthropic", "claude-opus-4-1", "", Usage{Input: 10, CacheWrite1h: 10, Output: 1}, Terms{}, "1", []at{{10, "30"}, {1, "75"}}},
		{"gpt-5.5 has no write fee", "openai", "gpt-5.5", "", Usage{Input: 10, CacheWrite: 10, Output: 1}, Terms{}, "1", []at{{10, "5"}, {1, "30"}}},
		{"5.6-terra write fee", "openai", "gpt-5.6-terra", "", Usage{Input: 10, CacheWrite: 7, Output: 1}, Terms{}, "1", []at{{3, "2"}, {7, "2.5"}, {1, "12"}}},
		{"deepseek flash cached rounds up", "deepseek", "deepseek-v4-flash", "", Usage{Input: 1, CachedInput: 1}, Terms{}, "1", []at{{1, "0.007"}}},
		{"reasoning costs output", "openai", "o3", "", Usage{Input: 11, Output: 100, Reasoning: 90}, Terms{}, "1", []at{{11, "2"}, {100, "8"}}},
		{"gpt-oss on groq", "groq", "openai/gpt-oss-20b", "", Usage{Input: 3, CachedInput: 2, Output: 1}, Terms{}, "1", []at{{1, "0.075"}, {2, "0.0375"}, {1, "0.3"}}},
		{"one token of command-r7b rounds up", "cohere", "command-r7b", "", Usage{Input: 1}, Terms{}, "1", []at{{1, "0.0375"}}},
		{"nothing", "openai", "gpt-5", "", Usage{}, Terms{}, "1", nil},

		// Reranking.
		{"three search units", "cohere", "rerank-v3.5", "", Usage{SearchUnits: 3, Requests: 1}, Terms{}, "1", []at{{3, "2000"}}},
		{"a search unit of v4.0-pro", "cohere", "rerank-v4.0-pro", "", Usage{Input: 900, SearchUnits: 1, Requests: 1}, Terms{}, "1", []at{{1, "2500"}}},
		{"rerank-2.5-lite by tokens", "voyage", "rerank-2.5-lite", "", Usage{Input: 1234, Requests: 1}, Terms{}, "1", []at{{1234, "0.02"}}},

		// Dates, to the second.
		{"sonnet-5-5 before the cache cut", "anthropic", "claude-sonnet-5-5", "2026-10-06T23:59:59Z", Usage{Input: 1000, CachedInput: 1000}, Terms{}, "1", []at{{1000, "0.20"}}},
		{"sonnet-5-5 after the cache cut", "anthropic", "claude-sonnet-5-5", "2026-10-07T00:00:00Z", Usage{Input: 1000, CachedInput: 1000}, Terms{}, "1", []at{{1000, "0.1"}}},
		{"5.6-sol before", "openai", "gpt-5.6-sol", "2026-08-20T23:59:59Z", Usage{Input: 1000, Output: 10}, Terms{}, "1", []at{{1000, "5"}, {10, "30"}}},
		{"5.6-sol after", "openai", "gpt-5.6-sol", "2026-08-21T00:00:00Z", Usage{Input: 1000, CachedInput: 500, Output: 10}, Terms{}, "1", []at{{500, "4"}, {500, "0.4"}, {10, "20"}}},
		{"5.6-sol after, long", "openai", "gpt-5.6-sol", "", Usage{Input: 272000, Output: 10}, Terms{}, "1", []at{{272000, "8"}, {10, "30"}}},
		{"5.6-terra before", "openai", "gpt-5.6-terra", "2026-07-29T23:59:59Z", Usage{Input: 1000, Output: 10}, Terms{}, "1", []at{{1000, "2.5"}, {10, "15"}}},
		{"5.6-luna before", "openai", "gpt-5.6-luna", "2026-07-29T23:59:59Z", Usage{Input: 1000, Output: 10}, Terms{}, "1", []at{{1000, "1"}, {10, "6"}}},
		{"5.6-luna after", "openai", "gpt-5.6-luna", "2026-07-30T00:00:00Z", Usage{Input: 1000, Output: 10}, Terms{}, "1", []at{{1000, "0.2"}, {10, "1.2"}}},
		{"gemini-3.8-flash this year", "google", "gemini-3.8-flash", "2026-12-31T23:59:59Z", Usage{Input: 1000, CachedInput: 10, Output: 10}, Terms{}, "1", []at{{990, "0.75"}, {10, "0.075"}, {10, "3.75"}}},
		{"gemini-3.8-flash next year", "google", "gemini-3.8-flash", "2027-01-01T00:00:00Z", Usage{Input: 1000, CachedInput: 10, Output: 10}, Terms{}, "1", []at{{990, "1.5"}, {10, "0.15"}, {10, "7.5"}}},
		{"gemini-3.7-flash next year", "google", "gemini-3.7-flash", "2027-06-01T00:00:00Z", Usage{Input: 1000, Output: 10}, Terms{}, "1", []at{{1000, "1.5"}, {10, "7.5"}}},
		{"gemini-3.6-flash next year in a batch", "google", "gemini-3.6-flash", "2027-06-01T00:00:00Z", Usage{Input: 1000, Output: 10}, Terms{Batch: true}, "0.5", []at{{1000, "1.5"}, {10, "7.5"}}},
		{"terms name the time", "google", "gemini-3.8-flash", "", Usage{Input: 1000}, Terms{At: date("2027-01-01T01:00:00+01:00")}, "1", []at{{1000, "1.5"}}},

		// Hours of the day, UTC.
		{"v4-pro at 00:59:59", "deepseek", "deepseek-v4-pro", "2026-11-20T00:59:59Z", Usage{Input: 1000, CachedInput: 100, Output: 10}, Terms{}, "1", []at{{900, "0.66"}, {100, "0.022"}, {10, "1.98"}}},
		{"v4-pro at 01:00", "deepseek", "deepseek-v4-pro", "2026-11-20T01:00:00Z", Usage{Input: 1000, CachedInput: 100, Output: 10}, Terms{}, "1", []at{{900, "1.32"}, {100, "0.044"}, {10, "3.96"}}},
		{"v4-pro at 03:59:59", "deepseek", "deepseek-v4-pro", "2026-11-20T03:59:59Z", Usage{Input: 1000}, Terms{}, "1", []at{{1000, "1.32"}}},
		{"v4-pro at 04:00", "deepseek", "deepseek-v4-pro", "2026-11-20T04:00:00Z", Usage{Input: 1000}, Terms{}, "1", []at{{1000, "0.66"}}},
		{"v4-flash at 06:00", "deepseek", "deepseek-v4-flash", "2026-11-20T06:00:00Z", Usage{Input: 1000, CachedInput: 999, Output: 1}, Terms{}, "1", []at{{1, "0.44"}, {999, "0.014"}, {1, "1.32"}}},
		{"v4-flash at 10:00", "deepseek", "deepseek-v4-flash", "2026-11-20T10:00:00Z", Usage{Input: 1000}, Terms{}, "1", []at{{1000, "0.22"}}},
		{"v4-flash at 07:00 in New York", "deepseek", "deepseek-v4-flash", "2026-11-20T07:00:00-05:00", Usage{Input: 1000}, Terms{}, "1", []at{{1000, "0.22"}}},
		{"deepseek-chat is charged as v4-flash", "deepseek", "deepseek-chat", "2026-11-20T06:00:00Z", Usage{Input: 1000, Output: 5}, Terms{}, "1", []at{{1000, "0.44"}, {5, "1.32"}}},
		{"deepseek-reasoner is charged as v4-flash", "deepseek", "deepseek-reasoner", "", Usage{Input: 1000, CachedInput: 10, Output: 5}, Terms{}, "1", []at{{990, "0.22"}, {10, "0.007"}, {5, "0.66"}}},

		// Service tiers.
		{"6.1-sol flex", "openai", "gpt-6.1-sol", "", Usage{Input: 1001, CachedInput: 500, CacheWrite: 1, Output: 33}, tier("flex"), "0.5", []at{{500, "2"}, {500, "0.1"}, {1, "2.5"}, {33, "10"}}},
		{"6.1-sol priority", "openai", "gpt-6.1-sol", "", Usage{Input: 1000, CachedInput: 500, Output: 33}, tier("priority"), "2", []at{{500, "2"}, {500, "0.1"}, {33, "10"}}},
		{"6.1-sol fast", "openai", "gpt-6.1-sol", "", Usage{Input: 1000, Output: 33}, tier("fast"), "2", []at{{1000, "2"}, {33, "10"}}},
		{"6.1-sol priority, long", "openai", "gpt-6.1-sol", "", Usage{Input: 272001, Output: 33}, tier("priority"), "2", []at{{272001, "4"}, {33, "15"}}},
		{"6.1-sol default by name", "openai", "gpt-6.1-sol", "", Usage{Input: 1000, Output: 33}, tier("default"), "1", []at{{1000, "2"}, {33, "10"}}},
		{"6.1-sol auto", "openai", "gpt-6.1-sol", "", Usage{Input: 1000, Output: 33}, tier("auto"), "1", []at{{1000, "2"}, {33, "10"}}},
		{"6.1-sol auto in a priority project", "openai", "gpt-6.1-sol", "", Usage{Input: 1000, Output: 33}, Terms{ServiceTier: "auto", ProjectTier: "priority"}, "2", []at{{1000, "2"}, {33, "10"}}},
		{"6.1-sol answered default in a priority project", "openai", "gpt-6.1-sol", "", Usage{Input: 1000, Output: 33}, Terms{ServiceTier: "default", ProjectTier: "priority"}, "1", []at{{1000, "2"}, {33, "10"}}},
		{"an unknown tier is charged at the dearest", "openai", "gpt-6.1-sol", "", Usage{Input: 1000, Output: 33}, tier("warp"), "2", []at{{1000, "2"}, {33, "10"}}},
		{"gpt-5 priority, no figure known", "openai", "gpt-5", "", Usage{Input: 1000, Output: 33}, tier("priority"), "2.5", []at{{1000, "1.25"}, {33, "10"}}},
		{"gpt-4o has no flex", "openai", "gpt-4o", "", Usage{Input: 1000, Output: 33}, tier("flex"), "1", []at{{1000, "2.5"}, {33, "10"}}},
		{"o3 flex", "openai", "o3", "", Usage{Input: 3, CachedInput: 1, Output: 1}, tier("FLEX"), "0.5", []at{{2, "2"}, {1, "0.5"}, {1, "8"}}},
		{"opus-5-5 fast", "anthropic", "claude-opus-5-5", "", Usage{Input: 1000, Output: 33}, tier("fast"), "1", []at{{1000, "8"}, {33, "40"}}},
		{"deepseek knows no tiers", "deepseek", "deepseek-v4-pro", "", Usage{Input: 1000}, tier("priority"), "1", []at{{1000, "0.66"}}},
		{"groq on_demand", "groq", "llama-3.1-8b-instant", "", Usage{Input: 1000, Output: 1}, tier("on_demand"), "1", []at{{1000, "0.05"}, {1, "0.08"}}},

		// Regions.
		{"sonnet-5-5 in the us", "anthropic", "claude-sonnet-5-5", "", Usage{Input: 1001, CachedInput: 3, Output: 33}, Terms{Region: "us"}, "1.1", []at{{998, "2"}, {3, "0.1"}, {33, "10"}}},
		{"sonnet-5-5 global", "anthropic", "claude-sonnet-5-5", "", Usage{Input: 1001, Output: 33}, Terms{Region: "global"}, "1", []at{{1001, "2"}, {33, "10"}}},
		{"gpt-5.4 resident in the eu", "openai", "gpt-5.4", "", Usage{Input: 1001, Output: 33}, Terms{Region: "eu"}, "1.1", []at{{1001, "2.5"}, {33, "15"}}},
		{"gpt-5.2 is older than the uplift", "openai", "gpt-5.2", "", Usage{Input: 1001, Output: 33}, Terms{Region: "eu"}, "1", []at{{1001, "1.75"}, {33, "14"}}},
		{"6.1-sol flex and resident, rounded once", "openai", "gpt-6.1-sol", "", Usage{Input: 1, CachedInput: 1}, Terms{Region: "eu", ServiceTier: "flex"}, "0.55", []at{{1, "0.1"}}},

		// Batches.
		{"6.1-sol batch", "openai", "gpt-6.1-sol", "", Usage{Input: 1001, CachedInput: 500, Output: 33}, Terms{Batch: true}, "0.5", []at{{501, "2"}, {500, "0.1"}, {33, "10"}}},
		{"a batch has no priority", "openai", "gpt-6.1-sol", "", Usage{Input: 1000, Output: 33}, Terms{Batch: true, ServiceTier: "priority"}, "0.5", []at{{1000, "2"}, {33, "10"}}},
		{"haiku-5-5 long batch", "anthropic", "claude-haiku-5-5", "", Usage{Input: 100001, Output: 1}, Terms{Batch: true}, "0.5", []at{{100001, "0.5"}, {1, "2.5"}}},
		{"no batch discount known for deepseek", "deepseek", "deepseek-v4-pro", "", Usage{Input: 1000}, Terms{Batch: true}, "1", []at{{1000, "0.66"}}},
		{"embedding", "openai", "text-embedding-3-small", "", Usage{Input: 8191}, Terms{}, "1", []at{{8191, "0.02"}}},
		{"embedding batch", "openai", "text-embedding-3-large", "", Usage{Input: 8191}, Terms{Batch: true}, "0.5", []at{{8191, "0.13"}}},
		{"gemini embedding batch, 20 % off", "google", "gemini-embedding-001", "", Usage{Input: 2048}, Terms{Batch: true}, "0.8", []at{{2048, "0.15"}}},

		// Names.
		{"dated gpt-4o", "openai", "gpt-4o-2024-08-06", "", Usage{Input: 10, Output: 1}, Terms{}, "1", []at{{10, "2.5"}, {1, "10"}}},
		{"dated gpt-5-mini", "openai", "gpt-5-mini-2025-08-07", "", Usage{Input: 10, Output: 1}, Terms{}, "1", []at{{10, "0.25"}, {1, "2"}}},
		{"dated sonnet-4-5", "anthropic", "claude-sonnet-4-5-20250929", "", Usage{Input: 10, Output: 1}, Terms{}, "1", []at{{10, "3"}, {1, "15"}}},
		{"gateway alias of a vendor's model", "azure-eu", "gpt-4.1-nano", "", Usage{Input: 10, CachedInput: 3, Output: 1}, Terms{}, "1", []at{{7, "0.1"}, {3, "0.025"}, {1, "0.4"}}},

		// Fees: $10 per 1,000 searches, not discounted.
		{"web search", "openai", "gpt-5", "", Usage{Input: 10, Output: 1, ToolCalls: 3}, Terms{}, "1", []at{{10, "1.25"}, {1, "10"}, {3, "10000"}}},
		{"web search in a batch", "openai", "gpt-5", "", Usage{ToolCalls: 3}, Terms{Batch: true}, "1", []at{{3, "10000"}}},
	} {
		t.Run(x.name, func(t *testing.T) {
			when := november
			if x.when != "" {
				when = date(x.when)
			}
			got, err := lookup(t, x.provider, x.model, when).Charge(x.usage, x.terms)
			if want := bill(t, x.times, x.want...); err != nil || got != want {
				t.Errorf("charge = %s, %v; want %s", got, err, want)
			}
		})
	}
}

// TestEveryFact charges one million tokens of every class at every price in the facts file, so a
// charge in USD must equal the figure in the file.
func TestEveryFact(t *testing.T) {
	f, err := os.Open("testdata/prices.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := make(map[string]int)
	for i, name := range records[0] {
		column[name] = i
	}
	byModel := make(map[string][]string)
	for _, r := range records[1:] {
		byModel[r[0]] = r
	}
	if len(byModel) != 83 {
		t.Fatalf("%d facts, want 83", len(byModel))
	}
	for _, r := range records[1:] {
		facts := r
		if r[0] == "deepseek-chat" || r[0] == "deepseek-reasoner" {
			facts = byModel["deepseek-v4-flash"] // as the row's note says
		}
		t.Run(r[0], func(t *testing.T) {
			checkFact(t, r[0], r[1], func(name string) string { return facts[column[name]] })
		})
	}
}

func checkFact(t *testing.T, model, provider string, fact func(string) string) {
	p := lookup(t, provider, model, november)
	if p.Context != number(t, fact("context")) || p.MaxOutput != number(t, fact("max_output")) {
		t.Errorf("context %d, max output %d", p.Context, p.MaxOutput)
	}
	check := func(what string, u Usage, terms Terms, times, price string) {
		t.Helper()
		if price == "" {
			return
		}
		got, err := p.Charge(u, terms)
		if want := bill(t, times, at{max(u.Input, u.Output), price}); err != nil || got != want {
			t.Errorf("%s: charged %s, %v; want %s", what, got, err, want)
		}
	}
	base := number(t, fact("long_ctx_over"))
	if base == 0 {
		base = 1_000_000
	}
	write := fact("cache_write")
	cached := fact("cached_input")
	if cached == "" {
		cached = fact("input")
	}
	check("input", Usage{Input: base}, Terms{}, "1", fact("input"))
	check("cached", Usage{Input: base, CachedInput: base}, Terms{}, "1", cached)
	check("write", Usage{Input: base, CacheWrite: base}, Terms{}, "1", write)
	check("write 1h", Usage{Input: base, CacheWrite1h: base}, Terms{}, "1", fact("cache_write_1h"))
	check("output", Usage{Output: 1_000_000}, Terms{}, "1", fact("output"))
	check("long input", Usage{Input: base + 1}, Terms{}, "1", fact("long_input"))
	check("long cached", Usage{Input: base + 1, CachedInput: base + 1}, Terms{}, "1", fact("long_cached"))
	if long := fact("long_output"); long != "" {
		got, err := p.Charge(Usage{Input: base + 1, Output: 1_000_000}, Terms{})
		if want := bill(t, "1", at{base + 1, fact("long_input")}, at{1_000_000, long}); err != nil || got != want {
			t.Errorf("long output: charged %s, %v; want %s", got, err, want)
		}
	}
	if discount := fact("batch_discount"); discount != "" {
		left, _ := new(big.Rat).SetString(discount)
		left.Sub(big.NewRat(1, 1), left)
		check("batch", Usage{Input: base}, Terms{Batch: true}, left.RatString(), fact("input"))
	}
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
