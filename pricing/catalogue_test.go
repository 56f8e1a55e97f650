package pricing

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func embeddedFor(t testing.TB) *Catalogue {
	t.Helper()
	c, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// with adds entries written in YAML.
func with(t testing.TB, c *Catalogue, text string) *Catalogue {
	t.Helper()
	entries, err := ParseEntries([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	n, err := c.With(entries)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestLookup(t *testing.T) {
	c := with(t, embeddedFor(t), `
- {model: my-llama, provider: my-vllm, prices: [{input: 0.001, output: 0.002}]}
- {model: anything-else, prefixes: ["gpt-4o-2025", "ft:gpt-4o"], prices: [{input: 9, output: 9}]}
- {model: short, prefixes: ["org/"], prices: [{input: 1, output: 1}]}
- {model: long, prefixes: ["org/team/"], prices: [{input: 2, output: 2}]}
- {model: gpt-5-nano, provider: openai, prices: [{input: 7, output: 7}]}
- {model: ft:gpt-4o-mini:acme, prices: [{input: 0.3, output: 1.2}]}
- {model: shared-name, provider: a, prices: [{input: 1, output: 1}]}
- {model: shared-name, provider: b, prices: [{input: 2, output: 2}]}
- {model: same-price, provider: a, prices: [{input: 1, output: 1}]}
- {model: same-price, provider: b, prices: [{input: 1, output: 1}]}
`)
	for _, x := range []struct{ provider, model, want string }{
		{"openai", "gpt-4o", "openai gpt-4o"},
		{"openai", "gpt-4o-2024-11-20", "openai gpt-4o"},
		{"openai", "gpt-4o-mini-2024-07-18", "openai gpt-4o-mini"},
		{"openai", "gpt-4o-2024-05-13", "openai gpt-4o-2024-05-13"}, // at a price of its own
		{"openai", "gpt-5-mega", ""},
		{"openai", "gpt-5-chat-newest", ""},
		{"openai", "o3-deeper-research", ""},
		{"openai", "o3-2025-04-16", "openai o3"},
		{"openai", "gpt-6.1-sol-2026-09-29", "openai gpt-6.1-sol"},
		{"openai", "GPT-5", ""},
		{"openai", "claude-sonnet-5", ""}, // a listed provider that does not have the model
		{"openai", "", ""},
		{"anthropic", "claude-opus-5-5", "anthropic claude-opus-5-5"},
		{"anthropic", "claude-opus-5-20260801", "anthropic claude-opus-5"},
		{"anthropic", "claude-haiku-4-5@20251001", "anthropic claude-haiku-4-5"},
		{"google", "models/gemini-2.5-flash", "google gemini-2.5-flash"},
		{"google", "gemini-2.5-flash-image", ""},
		{"google", "gemini-2.5-flash-preview-tts", ""},
		{"cerebras", "gpt-oss-120b", "cerebras gpt-oss-120b"},
		{"groq", "gpt-oss-120b", ""},
		{"", "gpt-oss-120b", "cerebras gpt-oss-120b"},
		{"azure", "gpt-5", "openai gpt-5"},
		{"", "claude-sonnet-4-5-20250929", "anthropic claude-sonnet-4-5"},
		{"zai", "glm-5.3", "zai GLM-5.3"},
		// Operators' entries.
		{"my-vllm", "my-llama", "my-vllm my-llama"},
		{"my-vllm", "gpt-5", "openai gpt-5"}, // still not a provider of the catalogue
		{"openai", "gpt-4o-2025-01-01", " anything-else"},
		{"openai", "ft:gpt-4o-2024-08-06:acme::1", " anything-else"},
		{"openai", "ft:gpt-4o-mini:acme", " ft:gpt-4o-mini:acme"}, // exact beats prefix
		{"azure", "gpt-5-nano", "openai gpt-5-nano"},
		{"a", "shared-name", "a shared-name"},
		{"b", "shared-name", "b shared-name"},
		{"c", "shared-name", ""},
		{"openai", "org/x", " short"},
		{"openai", "org/team/x", " long"}, // the longest prefix, in any order
		{"c", "same-price", "a same-price"},
		{"openai", "ft:gpt-3.5-turbo:x", ""},
	} {
		p, err := c.Lookup(x.provider, x.model, november)
		got := ""
		if err == nil {
			got = p.Provider + " " + p.Model
		}
		var unknown *UnknownModelError
		if got != x.want || err != nil && !errors.As(err, &unknown) {
			t.Errorf("Lookup(%q, %q) = %q, %v; want %q", x.provider, x.model, got, err, x.want)
		}
	}
	p, err := c.Lookup("openai", "gpt-5-nano", november)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := p.Charge(Usage{Input: 1}, Terms{}); err != nil || n != 7000 {
		t.Errorf("the operator's price did not win: %v, %v", n, err)
	}
}

// TestMostSpecificRow: of the rows that apply, one that names a service tier has precedence over
// one that names a region, and that over one that names hours.
func TestMostSpecificRow(t *testing.T) {
	c := with(t, &Catalogue{}, `
- model: m
  prices:
    - {input: 1, output: 1}
    - {utc_hours: ["22:00-02:00"], input: 2, output: 2}
    - {region: any, input: 3, output: 3}
    - {region: eu, input: 4, output: 4}
    - {service_tier: fast, input: 5, output: 5}
    - {service_tier: fast, region: eu, input: 6, output: 6}
`)
	for _, x := range []struct {
		when  string
		terms Terms
		want  Nano
	}{
		{"2026-11-20T12:00:00Z", Terms{}, 1},
		{"2026-11-20T22:00:00Z", Terms{}, 2},
		{"2026-11-20T01:59:59Z", Terms{}, 2},
		{"2026-11-20T02:00:00Z", Terms{}, 1},
		{"2026-11-20T23:00:00Z", Terms{Region: "apac"}, 3},
		{"2026-11-20T23:00:00Z", Terms{Region: "EU"}, 4},
		{"2026-11-20T23:00:00Z", Terms{ServiceTier: "fast", Region: "apac"}, 5},
		{"2026-11-20T12:00:00Z", Terms{ServiceTier: "fast", Region: "eu"}, 6},
	} {
		p, err := c.Lookup("", "m", date(x.when))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Charge(Usage{Input: 1}, x.terms); err != nil || got != x.want*1000 {
			t.Errorf("%s %+v: %v, %v; want %d000", x.when, x.terms, got, err, x.want)
		}
	}
}

func TestUnknownModelSaysHowToAddAPrice(t *testing.T) {
	_, err := embeddedFor(t).Lookup("openai", "gpt-unheard-of\n"+strings.Repeat("x", 500), november)
	text := err.Error()
	for _, want := range []string{"gpt-unheard-of", `provider "openai"`, "prices:", "USD per 1M tokens", "input:", "output:"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	if len(text) > 600 || strings.Contains(text, "\n") {
		t.Errorf("a hostile name makes the message %q", text)
	}
	c := with(t, &Catalogue{}, `
- {model: x, provider: a, prices: [{input: 1, output: 1}]}
- {model: x, provider: b, prices: [{input: 2, output: 1}]}
- {model: later, prices: [{effective_from: 2027-01-01, input: 1, output: 1}]}
`)
	if _, err = c.Lookup("", "x", november); !strings.Contains(err.Error(), "a, b") {
		t.Errorf("rivals not named: %v", err)
	}
	if _, err = c.Lookup("", "later", november); !strings.Contains(err.Error(), "2027-01-01") {
		t.Errorf("start not named: %v", err)
	}
	if _, err = c.Lookup("", "later", date("2027-01-01T00:00:00Z")); err != nil {
		t.Error(err)
	}
}

func TestZeroCatalogueKnowsNothing(t *testing.T) {
	if _, err := new(Catalogue).Lookup("p", "m", november); err == nil {
		t.Error("a price from nowhere")
	}
}

func TestUnknownModelPriceOfAnOrg(t *testing.T) {
	in, err := PerMillion("20")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Entry{Model: "unknown", Prices: []Row{{Rates: Rates{Input: in, Output: in}}}}.Price(november)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := p.Charge(Usage{Input: 1, Output: 1}, Terms{}); err != nil || n != 40_000 {
		t.Errorf("charge %v, %v", n, err)
	}
	if _, err := (Entry{Model: "unknown"}).Price(november); err == nil {
		t.Error("an entry without prices has a price")
	}
}

func TestPriceIsFrozen(t *testing.T) {
	c := embeddedFor(t)
	p := lookup(t, "openai", "gpt-5", november)
	before, _ := p.Charge(Usage{Input: 1000}, Terms{})
	with(t, c, `[{model: gpt-5, provider: openai, prices: [{input: 100, output: 100}]}]`)
	if after, _ := p.Charge(Usage{Input: 1000}, Terms{}); after != before || p.Version != c.Version() {
		t.Errorf("charge changed from %v to %v, version %s", before, after, p.Version)
	}
}

func TestParseIsStrict(t *testing.T) {
	row := func(s string) string { return "models: [{model: m, prices: [" + s + "]}]" }
	for name, text := range map[string]string{
		"unknown key":                    row("{input: 1, output: 1, imput: 2}"),
		"no output":                      row("{input: 1}"),
		"no input":                       row("{output: 1}"),
		"empty input":                    row("{input: , output: 1}"),
		"negative":                       row("{input: -1, output: 1}"),
		"too fine":                       row("{input: 0.0000001, output: 1}"),
		"absurd":                         row("{input: 1000001000000, output: 1}"),
		"not a number":                   row("{input: .inf, output: 1}"),
		"hex":                            row("{input: 0x10, output: 1}"),
		"underscore":                     row("{input: 1_0, output: 1}"),
		"list":                           row("{input: [1], output: 1}"),
		"no base":                        row("{context_over: 5, input: 1, output: 1}"),
		"twice":                          row("{input: 1, output: 1}, {input: 2, output: 2}"),
		"tier without the context edge":  row("{input: 1, output: 1}, {context_over: 5, input: 2, output: 2}, {service_tier: x, input: 1, output: 1}"),
		"tier with an edge of its own":   row("{input: 1, output: 1}, {service_tier: x, input: 1, output: 1}, {service_tier: x, context_over: 5, input: 1, output: 1}"),
		"period without a base":          row("{input: 1, output: 1}, {effective_from: 2027-01-01, service_tier: x, input: 1, output: 1}"),
		"bad date":                       row("{effective_from: 2027-13-01, input: 1, output: 1}"),
		"bad hours":                      row("{input: 1, output: 1}, {utc_hours: [1-4], input: 1, output: 1}"),
		"empty hours":                    row(`{input: 1, output: 1}, {utc_hours: ["04:00-04:00"], input: 1, output: 1}`),
		"overlapping hours":              row(`{input: 1, output: 1}, {utc_hours: ["01:00-04:00"], input: 1, output: 1}, {utc_hours: ["03:00-05:00"], input: 2, output: 1}`),
		"negative edge":                  row("{input: 1, output: 1}, {context_over: -5, input: 1, output: 1}"),
		"tier auto":                      row("{input: 1, output: 1}, {service_tier: auto, input: 1, output: 1}"),
		"no prices":                      "models: [{model: m}]",
		"no name":                        "models: [{prices: [{input: 1, output: 1}]}]",
		"name with a space":              "models: [{model: a b, prices: [{input: 1, output: 1}]}]",
		"two of a name":                  "models: [{model: m, prices: [{input: 1, output: 1}]}, {model: n, names: [m], prices: [{input: 1, output: 1}]}]",
		"two of a prefix":                "models: [{model: m, prefixes: [x], prices: [{input: 1, output: 1}]}, {model: n, prefixes: [x], prices: [{input: 1, output: 1}]}]",
		"empty prefix":                   `models: [{model: m, prefixes: [""], prices: [{input: 1, output: 1}]}]`,
		"negative context":               "models: [{model: m, context: -1, prices: [{input: 1, output: 1}]}]",
		"unknown shared list":            "models: [{model: m, use: [x], prices: [{input: 1, output: 1}]}]",
		"multiplier without a condition": "models: [{model: m, multipliers: [{times: 2}], prices: [{input: 1, output: 1}]}]",
		"multiplier of 0":                "models: [{model: m, multipliers: [{batch: true, times: 0}], prices: [{input: 1, output: 1}]}]",
		"multiplier of 101":              "models: [{model: m, multipliers: [{batch: true, times: 101}], prices: [{input: 1, output: 1}]}]",
		"multiplier without times":       "models: [{model: m, multipliers: [{batch: true}], prices: [{input: 1, output: 1}]}]",
		"multiplied twice":               "models: [{model: m, multipliers: [{batch: true, times: 2}, {batch: true, times: 2}], prices: [{input: 1, output: 1}]}]",
		"row and multiplier for a tier":  "models: [{model: m, multipliers: [{service_tier: x, times: 2}], prices: [{input: 1, output: 1}, {service_tier: x, input: 1, output: 1}]}]",
		"duplicate key":                  "models: [{model: m, model: n, prices: [{input: 1, output: 1}]}]",
	} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s: accepted %s", name, text)
		}
	}
	if _, err := Parse([]byte("models:\n  - model: m\n    prices:\n      - input: 1.23456789\n        output: 2\n")); err == nil || !strings.Contains(err.Error(), "[4:16]") {
		t.Errorf("no line and column in %v", err)
	}
	if _, err := Parse([]byte(row(`{input: "1.50", output: '0'}`))); err != nil {
		t.Errorf("quoted decimals: %v", err)
	}
}

var update = flag.Bool("update", false, "write prices.json from prices.yaml")

// TestEmbeddedIsTheList: the embedded catalogue says what prices.yaml says.
func TestEmbeddedIsTheList(t *testing.T) {
	want, err := parseFile(pricesYAML(t))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		writePrices(t, want)
		return
	}
	var got catalogueFile
	if err := json.Unmarshal(embeddedJSON, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("prices.json is not what prices.yaml says; run `make generate`")
	}
}

func pricesYAML(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("prices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// writePrices writes prices.json, with a line for each model and without what is not given.
func writePrices(t *testing.T, f catalogueFile) {
	t.Helper()
	var out bytes.Buffer
	fmt.Fprintf(&out, "{\"Unit\":%s,\n\"Shared\":%s,\n\"Models\":[", given(t, f.Unit), given(t, f.Shared))
	for i, e := range f.Models {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, "\n%s", given(t, e))
	}
	out.WriteString("]}\n")
	if err := os.WriteFile("prices.json", out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// given returns a value as JSON without the members that are zero.
func given(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	if err := numbers.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	text, err = json.Marshal(pruned(tree))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func pruned(tree any) any {
	object, _ := tree.(map[string]any)
	for name, member := range object {
		object[name] = pruned(member)
		if slices.Contains([]string{`""`, "0", "false", "null", "{}", `"0001-01-01T00:00:00Z"`}, jsonOf(object[name])) {
			delete(object, name)
		}
	}
	if list, ok := tree.([]any); ok {
		for i := range list {
			list[i] = pruned(list[i])
		}
	}
	return tree
}

func jsonOf(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func TestVersionFollowsContent(t *testing.T) {
	c, text := embeddedFor(t), pricesYAML(t)
	again, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	commented, err := Parse(append([]byte("# a comment\n"), text...))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Version()) != 12 || c.Version() != again.Version() || c.Version() != commented.Version() {
		t.Errorf("versions %s, %s, %s of the same content", c.Version(), again.Version(), commented.Version())
	}
	if same, err := c.With(nil); err != nil || same.Version() != c.Version() {
		t.Errorf("no overrides change the version to %s, %v", same.Version(), err)
	}
	seen := map[string]string{c.Version(): "embedded"}
	for _, text := range []string{
		"[{model: m, prices: [{input: 1, output: 1}]}]",
		"[{model: m, prices: [{input: 1, cached_input: 1, output: 1}]}]",
		"[{model: m, provider: p, prices: [{input: 1, output: 1}]}]",
		"[{model: m, prefixes: [x], prices: [{input: 1, output: 1}]}]",
		"[{model: m, max_output: 5, prices: [{input: 1, output: 1}]}]",
		"[{model: m, use: [openai-batch], prices: [{input: 1, output: 1}]}]",
		`[{model: m, prices: [{input: 1, output: 1}, {utc_hours: ["01:00-02:00"], input: 1, output: 1}]}]`,
	} {
		v := with(t, c, text).Version()
		if other, dup := seen[v]; dup {
			t.Errorf("%s and %s have the same version", text, other)
		}
		seen[v] = text
	}
}

func TestUnit(t *testing.T) {
	if got := embeddedFor(t).Unit(); got != "usd" {
		t.Errorf("unit %s", got)
	}
	c, err := Parse([]byte("unit: credits\nmodels: [{model: m, prices: [{input: 3, output: 5, per_request: 1}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Lookup("x", "m", november)
	if err != nil {
		t.Fatal(err)
	}
	n, err := p.Charge(Usage{Input: 1_000_000, Output: 1_000_000, Requests: 1}, Terms{})
	if c.Unit() != "credits" || err != nil || n != 9*NanoPerUSD {
		t.Errorf("%v %s, %v", n, c.Unit(), err)
	}
}

func TestAge(t *testing.T) {
	c := embeddedFor(t)
	if got := c.AsOf().Format(time.DateOnly); got != "2026-09-23" {
		t.Errorf("as of %s", got)
	}
	if got := c.Age(date("2026-09-24T12:00:00Z")); got != 36*time.Hour {
		t.Errorf("age %v", got)
	}
	if got := c.Age(date("2020-01-01T00:00:00Z")); got != 0 {
		t.Errorf("age before as_of %v", got)
	}
	reg := prometheus.NewRegistry()
	now := func() time.Time { return date("2026-09-24T00:00:00Z") }
	if err := Register(reg, func() *Catalogue { return c }, now); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP llmguard_pricing_age_seconds Time since the oldest price in force was last checked.
# TYPE llmguard_pricing_age_seconds gauge
llmguard_pricing_age_seconds 86400
# HELP llmguard_pricing_models Models that have a price.
# TYPE llmguard_pricing_models gauge
llmguard_pricing_models 161
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if err := Register(nil, nil, nil); err != nil {
		t.Error(err)
	}
}

// TestLookupRemembersFew: callers choose names, so the cache of names is bounded.
func TestLookupRemembersFew(t *testing.T) {
	list, err := ParseEntries([]byte(`[{model: m, prefixes: [m-], prices: [{input: 1, output: 1}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := New("", list)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2*mostKnown + 5 {
		if _, err := c.Lookup("", fmt.Sprint("m-", i), november); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.known.entries); n == 0 || n > mostKnown {
		t.Errorf("%d are kept", n)
	}
	long := "m-" + strings.Repeat("x", longKnown)
	if _, err := c.Lookup("", long, november); err != nil || c.known.get("", long) != nil {
		t.Errorf("a long name: %v", err)
	}
}
