package pricing

import (
	"bytes"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func readFeed(t testing.TB, file string, imp func(io.Reader) (*Feed, error)) *Feed {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	feed, err := imp(f)
	if err != nil {
		t.Fatal(err)
	}
	return feed
}

// feedCharge is the expected charge of a call to a feed's model.
type feedCharge struct {
	provider, model, when string
	usage                 Usage
	terms                 Terms
	times                 string
	want                  []at
}

func wantCharges(t *testing.T, feed *Feed, list []feedCharge) {
	t.Helper()
	c, err := feed.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		when := november
		if x.when != "" {
			when = date(x.when)
		}
		p, err := c.Lookup(x.provider, x.model, when)
		if err != nil {
			t.Error(err)
			continue
		}
		got, err := p.Charge(x.usage, x.terms)
		if want := bill(t, x.times, x.want...); err != nil || got != want {
			t.Errorf("%s %+v %+v: %v, %v; want %v", x.model, x.usage, x.terms, got, err, want)
		}
	}
}

func wantNotes(t *testing.T, feed *Feed, want ...string) {
	t.Helper()
	var all strings.Builder
	for _, n := range feed.Notes {
		all.WriteString(n.Provider + " " + n.Model + " " + n.Text + "\n")
	}
	for _, w := range want {
		if !strings.Contains(all.String(), w) {
			t.Errorf("no note %q in:\n%s", w, &all)
		}
	}
	if len(feed.Notes) != len(want) {
		t.Errorf("%d notes, want %d:\n%s", len(feed.Notes), len(want), &all)
	}
}

func TestImportGenAI(t *testing.T) {
	feed := readFeed(t, "genai.json", ImportGenAI)
	wantCharges(t, feed, []feedCharge{
		{"openai", "gpt-5.6", "2026-08-20T00:00:00Z", Usage{Input: 272000, CacheWrite: 1, ToolCalls: 1}, Terms{}, "1", []at{{271999, "5"}, {1, "6.25"}, {1, "10000"}}},
		{"openai", "gpt-5.6-sol", "2026-08-20T00:00:00Z", Usage{Input: 272001, CachedInput: 272001, Output: 1}, Terms{}, "1", []at{{272001, "1"}, {1, "45"}}},
		{"openai", "gpt-5.6-sol-2026-05-01", "", Usage{Input: 10, CachedInput: 3, Output: 1}, Terms{}, "1", []at{{7, "4"}, {3, "0.4"}, {1, "20"}}},
		{"openai", "gpt-5.6-sol", "", Usage{Input: 272001, Output: 1}, Terms{}, "1", []at{{272001, "8"}, {1, "30"}}},
		{"openai", "gpt-audio", "", Usage{Input: 10, AudioIn: 4, Output: 5, AudioOut: 5}, Terms{}, "1", []at{{6, "2.5"}, {4, "32"}, {5, "64"}}},
		{"openai", "text-embedding-3-small", "", Usage{Input: 10}, Terms{}, "1", []at{{10, "0.02"}}},
		{"deepseek", "deepseek-chat-v3", "2026-11-20T00:29:59Z", Usage{Input: 10, CachedInput: 2, Output: 1}, Terms{}, "1", []at{{8, "0.135"}, {2, "0.035"}, {1, "0.55"}}},
		{"deepseek", "deepseek-chat", "2026-11-20T00:30:00Z", Usage{Input: 10, CachedInput: 2, Output: 1}, Terms{}, "1", []at{{8, "0.27"}, {2, "0.07"}, {1, "1.1"}}},
		{"perplexity", "sonar-online", "", Usage{Input: 10, Output: 1, Requests: 1}, Terms{}, "1", []at{{10, "1"}, {1, "1.5"}, {1, "12000"}}},
	})
	wantNotes(t, feed, "gpt-audio price output_reasoning_mtok left out", "moderation a match by contains",
		"moderation left out: no input price", "too-fine left out", "negative left out")
}

func TestImportLiteLLM(t *testing.T) {
	feed := readFeed(t, "litellm.json", ImportLiteLLM)
	u := Usage{Input: 1000, CachedInput: 100, CacheWrite: 10, Output: 7}
	long := Usage{Input: 272001, CachedInput: 100, Output: 7}
	wantCharges(t, feed, []feedCharge{
		{"openai", "gpt-6.1-sol", "", u, Terms{}, "1", []at{{890, "2"}, {100, "0.1"}, {10, "2.5"}, {7, "10"}}},
		{"openai", "gpt-6.1-sol", "", long, Terms{}, "1", []at{{271901, "4"}, {100, "0.2"}, {7, "15"}}},
		{"openai", "gpt-6.1-sol", "", u, Terms{ServiceTier: "flex"}, "1", []at{{890, "1"}, {100, "0.05"}, {10, "2.5"}, {7, "5"}}},
		{"openai", "gpt-6.1-sol", "", u, Terms{ServiceTier: "priority"}, "1", []at{{890, "4"}, {100, "0.1"}, {10, "2.5"}, {7, "20"}}},
		// The feed has no priority output price over 272k; the more expensive of its neighbors is
		// used.
		{"openai", "gpt-6.1-sol", "", long, Terms{ServiceTier: "priority"}, "1", []at{{271901, "8"}, {100, "0.2"}, {7, "20"}}},
		{"openai", "gpt-6.1-sol", "", u, Terms{Batch: true}, "0.5", []at{{890, "2"}, {100, "0.1"}, {10, "2.5"}, {7, "10"}}},
		{"openai", "gpt-6.1-sol", "", u, Terms{Region: "eu"}, "1.1", []at{{890, "2"}, {100, "0.1"}, {10, "2.5"}, {7, "10"}}},
		{"openai", "gpt-6.1-sol", "", Usage{ToolCalls: 2}, Terms{}, "1", []at{{2, "12000"}}},
		{"anthropic", "claude-haiku-4-5", "", Usage{Input: 10, CacheWrite1h: 3}, Terms{Region: "us"}, "1.1", []at{{7, "1"}, {3, "2"}}},
		{"anthropic", "claude-haiku-4-5", "", Usage{Input: 10}, Terms{ServiceTier: "fast"}, "2", []at{{10, "1"}}},
		{"google", "gemini-2.5-pro", "", Usage{Input: 200001, Output: 1}, Terms{}, "1", []at{{200001, "2.5"}, {1, "15"}}},
		{"perplexity", "pplx-70b-online", "", Usage{Input: 10, Output: 1, Requests: 1}, Terms{}, "1", []at{{1, "2.8"}, {1, "5000"}}},
		{"openai", "text-embedding-3-small", "", Usage{Input: 1}, Terms{}, "1", []at{{1, "0.02"}}},
	})
	wantNotes(t, feed, "artefact left out: input_cost_per_token", "publicai free left out: every price is 0", "odd-batch batch prices left out")
	for _, e := range feed.Entries {
		for _, r := range e.Prices {
			if r.ServiceTier == "batches" {
				t.Errorf("%s has a service tier for batches", e.Model)
			}
		}
		if e.Model == "gpt-6.1-sol" && (e.Context != 922000 || e.MaxOutput != 128000) {
			t.Errorf("limits %d, %d", e.Context, e.MaxOutput)
		}
	}
}

func TestImportRefusesGarbage(t *testing.T) {
	for name, imp := range importers {
		for _, text := range []string{"", "null garbage", "{", `[1]`, `{"a":`} {
			if _, err := imp(strings.NewReader(text)); err == nil {
				t.Errorf("%s accepted %q", name, text)
			}
		}
	}
}

var importers = map[string]func(io.Reader) (*Feed, error){"genai.json": ImportGenAI, "litellm.json": ImportLiteLLM}

func TestVerify(t *testing.T) {
	c, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	genai, litellm := readFeed(t, "genai.json", ImportGenAI), readFeed(t, "litellm.json", ImportLiteLLM)
	own, err := ImportCSV(strings.NewReader("model,provider,input,output\nmistral-embed,mistral,0.1,0.1\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Verify(c, november, genai, litellm, own)
	if err != nil {
		t.Fatal(err)
	}
	want := []Disagreement{
		{"mistral", "mistral-embed", "output", []SourcedPrice{{"catalogue", "0"}, {"csv", "0.1"}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("disagreements %+v\nwant %+v", got, want)
	}
	// Before the cut the feed's first period must be compared with ours.
	if got, err = Verify(c, date("2026-08-01T00:00:00Z"), genai); err != nil || len(got) != 0 {
		t.Errorf("disagreements %+v, %v before 2026-08-21", got, err)
	}
}

func TestDiff(t *testing.T) {
	c, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	if d := Diff(c, c); len(d) != 0 {
		t.Errorf("a catalogue differs from itself: %v", d)
	}
	const text = `
- model: gpt-6-luna
  provider: openai
  context: 1050000
  max_output: 128000
  use: [openai-batch, openai-flex, openai-priority, openai-residency]
  prices:
    - {input: "0.2", cached_input: 0.01, cache_write: 0.125, output: 0.5, per_tool_call: 0.01}
    - {context_over: 272000, input: 0.2, cached_input: 0.02, output: 0.75, per_tool_call: 0.01}
- model: mine
  prices: [{input: 1, output: 2}]
`
	entries, err := ParseEntries([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.With(entries)
	if err != nil {
		t.Fatal(err)
	}
	want := []Difference{
		{"", "mine", "", "", "listed"},
		{"openai", "gpt-6-luna", "input", "0.1", "0.2"},
		{"openai", "gpt-6-luna", "over 272000 cache_write", "0.25", ""},
	}
	if got := Diff(c, other); !reflect.DeepEqual(got, want) {
		t.Errorf("diff %+v\nwant %+v", got, want)
	}
}

func TestWriteEntriesReadsBack(t *testing.T) {
	c, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	sets := [][]Entry{c.Entries(), nil, {{
		Model: "x:y #1"[:3], Provider: "true", Note: "a \"b\"\n\u00e9: # c", Prefixes: []string{"-", "1", "ft:x"},
		AsOf: date("2026-01-02T03:04:05Z"), Prices: []Row{{EffectiveFrom: date("2026-01-02T03:04:05Z"), Rates: Rates{Input: Rate{Given: true}, Output: Rate{1, true}}}},
	}}}
	for file, imp := range importers {
		sets = append(sets, readFeed(t, file, imp).Entries)
	}
	for _, entries := range sets {
		var b bytes.Buffer
		if err := WriteEntries(&b, entries); err != nil {
			t.Fatal(err)
		}
		again, err := ParseEntries(b.Bytes())
		if err != nil {
			t.Fatalf("%v\n%s", err, &b)
		}
		if len(entries) != len(again) {
			t.Fatalf("%d entries became %d", len(entries), len(again))
		}
		for i := range entries {
			if !reflect.DeepEqual(entries[i], again[i]) {
				t.Errorf("wrote %+v\nread  %+v", entries[i], again[i])
			}
		}
	}
}

func FuzzImport(f *testing.F) {
	for file := range importers {
		text, err := os.ReadFile("testdata/" + file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"m":{"input_cost_per_token":1e-5,"output_cost_per_token":1e999999}}`))
	f.Add([]byte(`[{"id":"p","models":[{"id":"m","match":{"or":[{"or":[]}]},"prices":{"input_mtok":{"base":1,"tiers":[{"start":-1,"price":2}]},"output_mtok":1}}]}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for name, imp := range importers {
			feed, err := imp(bytes.NewReader(text))
			if err != nil {
				continue
			}
			c, err := feed.Catalogue()
			if err != nil {
				t.Fatalf("%s: imported entries are refused: %v", name, err)
			}
			for _, e := range feed.Entries {
				p, err := c.Lookup(e.Provider, e.Model, time.Unix(1<<40, 0))
				if err != nil {
					continue // an entry for all providers may be shadowed
				}
				n, err := p.Charge(Usage{Input: 10, Output: 10}, Terms{})
				if most, errMost := p.Ceiling(Usage{Input: 10, Output: 10}, Terms{}); err == nil && errMost == nil && most < n || n < 0 {
					t.Fatalf("%s %s: charge %v, ceiling %v", name, e.Model, n, most)
				}
			}
		}
	})
}
