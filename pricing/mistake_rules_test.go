package pricing_test

import (
	"io"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/pricing"
)

// TestEntryMistakes: each mistake in an entry is reported with the model and its position in the
// list.
func TestEntryMistakes(t *testing.T) {
	row := func(rows string) string { return "- {model: m, provider: p, prices: [" + rows + "]}\n" }
	const base = "{input: 1, output: 2}"
	for text, want := range map[string]string{
		row("{input: 1}"): "prices[0]: input and output prices must both be given, 0 included",
		row(base + ", {context_over: -1, input: 1, output: 2}"):       "prices[1]: context_over must not be negative",
		row("{context_over: 5, input: 1, output: 2}"):                 "every period needs a price without conditions",
		row(base + ", " + base):                                       "two prices have the same conditions",
		row(base + ", {service_tier: auto, input: 1, output: 2}"):     "prices[1]: service_tier auto is not a tier; leave it out",
		row("{input: 1, output: 2, images: [{size: a}]}"):             "prices[0]: images[0]: give either each or tokens",
		row("{input: 1, output: 2, images: [{tokens: -5}]}"):          "prices[0]: images[0]: out of range",
		row("{input: 1, output: 2, images: [{size: auto, each: 1}]}"): "prices[0]: images: auto is not a size or quality; leave it out",
		row("{input: 1, output: 2, images: [{each: 1}, {each: 2}]}"):  "prices[0]: images[1]: the same size and quality is listed twice",
		"- {model: m, provider: p}\n":                                 "no prices",
		"- {model: m, provider: p, context: -1, prices: [" + base +
			"]}\n": "context and max_output must not be negative",
		"- {model: a b, provider: p, prices: [" + base +
			"]}\n": `model name "a b": want 1 to 200 characters without spaces`,
		"- {model: m, provider: p, names: [m], prices: [" + base +
			"]}\n": `name "m" is listed twice`,
		"- {model: m, provider: p, prefixes: [x, x], prices: [" + base +
			"]}\n": `prefix "x" is listed twice`,
		"- {model: m, provider: p, use: [cheap], prices: [" + base +
			"]}\n": `use: no shared multipliers are called "cheap"`,
		"- {model: m, provider: p, multipliers: [{times: 2}], prices: [" + base +
			"]}\n": "multipliers[0]: needs a service_tier, region, utc_hours or batch",
		"- {model: m, provider: p, multipliers: [{batch: true}], prices: [" + base +
			"]}\n": "multipliers[0]: times must be above 0 and at most 100",
		"- {model: m, provider: p, multipliers: [{batch: true, times: 2}, {batch: true, times: 3}], prices: [" +
			base + "]}\n": "the same conditions are multiplied twice",
	} {
		entries, err := pricing.ParseEntries([]byte(text))
		if err != nil {
			t.Errorf("%s: got %v when it was read, want an error when it was checked", text, err)
			continue
		}
		_, err = new(pricing.Catalogue).With(entries)
		if err == nil || !strings.HasPrefix(err.Error(), "pricing: ") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// TestValueMistakes: a value that cannot be parsed is reported with its line and column.
func TestValueMistakes(t *testing.T) {
	for value, want := range map[string]string{
		"dear":          `price "dear": not a decimal number`,
		"-1":            `price "-1": negative`,
		"0.0000001":     `price "0.0000001": more decimals than can be kept exactly`,
		"1e30":          `price "1e30": too large`,
		"1_0":           `price "1_0": not a decimal number`,
		"0x10":          `price "0x10": not a decimal number`,
		".5":            `price ".5": not a decimal number`,
		"1000000000001": `price "1000000000001": too large`,
		"[1]":           "want a single value",
		"{a: 1}":        "want a single value",
	} {
		_, err := pricing.ParseEntries([]byte("- model: m\n  prices:\n    - input: 1\n      output: " + value + "\n"))
		if err == nil || !strings.Contains(err.Error(), "[4:15] "+want) {
			t.Errorf("%s: got %v, want [4:15] %s", value, err, want)
		}
	}
}

// TestDecimals: decimals may have exponents and quotes; they are never floats.
func TestDecimals(t *testing.T) {
	for text, want := range map[string]pricing.Pico{
		"1": 1_000_000, "1.0": 1_000_000, "0.1": 100_000, "1.5e-1": 150_000, "1E2": 100_000_000, "0.000001": 1, "0": 0, "1e-6": 1, "10e-7": 1,
	} {
		got, err := pricing.PerMillion(text)
		if err != nil || got.Pico != want || !got.Given {
			t.Errorf("%s: got %+v, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "1 0", "+1", "1.", "1e", "e1", "1e-7", "1.2.3", "1,5", "∞", "NaN",
		strings.Repeat("1", 65),
	} {
		got, err := pricing.PerMillion(text)
		if err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

func TestFactorsAndHours(t *testing.T) {
	for text, want := range map[string]string{"0.5": "0.5", "2.50": "2.5", "100": "100", "0.0001": "0.0001"} {
		got, err := pricing.ParseFactor(text)
		if err != nil || got.String() != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"0", "-1", "100.1", "0.00001", "half"} {
		got, err := pricing.ParseFactor(text)
		if err == nil {
			t.Errorf("%s: got %s, want an error", text, got)
		}
	}
	for text, want := range map[string]pricing.Hours{
		"00:00-24:00": {From: 0, To: 24 * 60}, "22:00-02:30": {From: 22 * 60, To: 2*60 + 30},
	} {
		got, err := pricing.ParseHours(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: got %+v, %s, %v, want %+v", text, got, got, err, want)
		}
	}
	for _, text := range []string{"1-4", "25:00-02:00", "12:60-13:00", "12:00", "12:00-13:00-14:00", ""} {
		got, err := pricing.ParseHours(text)
		if err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

// TestFeedMistakes: invalid feeds are refused with the line.
func TestFeedMistakes(t *testing.T) {
	importers := map[string]func(io.Reader) (*pricing.Feed, error){
		"genai-prices": pricing.ImportGenAI, "litellm": pricing.ImportLiteLLM,
	}
	for name, read := range importers {
		for text, want := range map[string]string{
			"":              "the file is empty",
			" \n\n":         "the file is empty",
			"{\n\"a\":\n":   "the JSON ends too early: is the file whole?",
			"<html>":        "line 1: not JSON: ",
			"{\n\n\"a\" 5}": "line 3: not JSON: ",
			"5":             "number where ",
			"\"a\"":         "string where ",
			"{} trailing":   "line 1: not JSON: ",
		} {
			_, err := read(strings.NewReader(text))
			if err == nil || !strings.HasPrefix(err.Error(), "pricing: "+name+": ") ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s of %q: got %v, want pricing: %s: ... %s", name, text, err, name, want)
			}
		}
	}
}

// TestCheckJSON: the error names the line in which a text stops being one value.
func TestCheckJSON(t *testing.T) {
	for text, want := range map[string]string{
		"{}": "", "[1,\n2]\n": "", "{\n\"a\": }": "line 2", "[1]\n[2]": "line 2", "": "the file is empty",
	} {
		err := pricing.CheckJSON([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// TestDiffNamesWhatChanged: differences between two catalogues are listed by model and field, in
// order.
func TestDiffNamesWhatChanged(t *testing.T) {
	before := catalogueOf(t, "- {model: a, prices: [{input: 1, output: 2}]}\n- {model: b, prices: [{input: 1, output: 2}]}\n")
	after := catalogueOf(t, "- {model: a, prices: [{input: 1, output: 2.5, cached_input: 0.1}]}\n- {model: c, prices: [{input: 1, output: 2}]}\n")
	var got []string
	for _, d := range pricing.Diff(before, after) {
		got = append(got, strings.Join([]string{d.Model, d.Field, d.Old, d.New}, "|"))
	}
	want := "a|cached_input||0.1 a|output|2|2.5 b||listed| c|||listed"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got %s, want %s", s, want)
	}
	if d := pricing.Diff(after, after); len(d) != 0 {
		t.Errorf("of itself: got %v, want nothing", d)
	}
}
