package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// house is a configuration whose prices do not change with releases.
const house = `
providers: [{id: house, base_url: "http://127.0.0.1:1"}]
orgs: [{id: acme}]
unknown_model_price: {max_output: 4096, prices: [{input: 15, output: 75}]}
prices:
  - model: house-7b
    provider: house
    names: [seven]
    prefixes: [house-7b-]
    max_output: 4096
    as_of: 2026-10-01
    multipliers: [{batch: true, times: 0.5}, {service_tier: rush, times: 3}, {region: any, times: 1.1}]
    prices:
      - {input: 1, cached_input: 0.25, output: 2}
      - {effective_from: 2026-11-01, input: 2, cached_input: 0.5, output: 12.5, per_tool_call: 0.01}
      - {effective_from: 2026-11-01, context_over: 1000, input: 4, cached_input: 1, output: 25, per_tool_call: 0.01}
  - model: house-night
    provider: house
    multipliers: [{utc_hours: ["01:00-04:00"], times: 2}]
    prices: [{input: 0.0375, output: 3}]
  - {model: rival, provider: a, prices: [{input: 1, output: 1}]}
  - {model: rival, provider: b, prices: [{input: 2, output: 1}]}
  - {model: house-later, provider: house, prices: [{effective_from: 2999-01-01, input: 1, output: 1}]}
  - {model: gpt-4o, provider: openai, as_of: 2026-10-02, prices: [{input: 77, output: 88}]}
`

// prices runs `llmguard prices` and returns its output.
func prices(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	err = run(t.Context(), append([]string{"prices"}, args...), &out, &errOut)
	return out.String(), errOut.String(), err
}

// mustPrices is prices for commands that succeed.
func mustPrices(t *testing.T, args ...string) string {
	t.Helper()
	out, _, err := prices(t, args...)
	if err != nil {
		t.Fatalf("prices %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestPricesList(t *testing.T) {
	c := write(t, "llmguard.yaml", house)
	same(t, mustPrices(t, "list", "-c", c, "--provider", "house", "--at", "2026-11-20"), `
model        provider   input  cached  output  long context  batch  max output  source
house-7b     house     2       0.5       12.5  >1000         x0.5         4096  config
house-night  house     0.0375  0.0375     3    -             -               -  config
`)
	same(t, mustPrices(t, "list", "-c", c, "--model", "*-7b", "--at", "2026-10-20"), `
model     provider  input  cached  output  long context  batch  max output  source
house-7b  house         1    0.25       2  -             x0.5         4096  config
`)
	same(t, mustPrices(t, "list", "-c", c, "--model", "house-n*", "--at", "2026-11-20T02:00:00Z"), `
model        provider  input  cached  output  long context  batch  max output  source
house-night  house     0.075   0.075       6  -             -               -  config
`)
	all := mustPrices(t, "list", "-c", c)
	for _, want := range []string{
		"\n*  ", " unknown_model_price\n", "\ngpt-4o  ", "77", " built-in\n",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if strings.Contains(all, "house-later") || strings.Contains(mustPrices(t, "list"), "config") {
		t.Error("a price that begins later, or one from nowhere")
	}
	for line := range strings.Lines(all) {
		if strings.TrimRight(line, " \n") != strings.TrimSuffix(line, "\n") {
			t.Errorf("space at the end of %q", line)
		}
	}
}

func TestPricesListForPrograms(t *testing.T) {
	c := write(t, "llmguard.yaml", house)
	args := []string{"list", "-c", c, "--provider", "house", "--model", "house-7*", "--at", "2026-11-20", "-o"}
	text, stderr, err := prices(t, append(args, "json")...)
	if err != nil || stderr != "" {
		t.Fatal(err, stderr)
	}
	var fromJSON, fromYAML []listedPrice
	if err := json.Unmarshal([]byte(text), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(mustPrices(t, append(args, "yaml")...)), &fromYAML); err != nil {
		t.Fatal(err)
	}
	want := listedPrice{
		Model: "house-7b", Provider: "house", Input: "2", CachedInput: "0.5", Output: "12.5",
		ContextOver: []int64{1000}, Batch: "0.5", MaxOutput: 4096, AsOf: "2026-10-01", Source: "config",
	}
	for form, list := range map[string][]listedPrice{"json": fromJSON, "yaml": fromYAML} {
		if len(list) != 1 || list[0].Input != want.Input || list[0].Source != want.Source || form == "json" && !equalJSON(list[0], want) {
			t.Errorf("%s: %+v", form, list)
		}
	}
}

func equalJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

func TestPricesShow(t *testing.T) {
	c := write(t, "llmguard.yaml", house)
	same(t, mustPrices(t, "show", "house-7b-instruct", "--provider", "house", "-c", c, "--at", "2026-10-20"), `
house-7b, provider house
  source         config
  checked on     2026-10-01
  aliases        seven
  name prefixes  house-7b-
  max output     4096 tokens

prices, USD per 1M tokens (fees: per call)
  when                                             input  cached_input  output  per_tool_call
  always                                               1          0.25     2             -
  from 2026-11-01                          future      2          0.5     12.5           0.01
  from 2026-11-01, over 1000 input tokens  future      4          1       25             0.01
  no separate price: cache_write as input, cache_write_1h as cache_write, image_in as input, image_out as output, audio_in as input, cached_audio_in as audio_in, audio_out as output

multipliers of the token prices
  x0.5  provider's batch API
  x3    service tier rush
  x1.1  any region except global
`)
	if out := mustPrices(t, "show", "seven", "-c", c, "--at", "2026-11-20"); !strings.Contains(out, "always                                   ended") {
		t.Errorf("the old price is not marked:\n%s", out)
	}
	if out := mustPrices(t, "show", "house-night", "-c", c); !strings.Contains(out, "x2  01:00-04:00 UTC") {
		t.Errorf("no hours:\n%s", out)
	}
	if out := mustPrices(t, "show", "nobody-knows", "-c", c); !strings.Contains(out, "nobody-knows is not in the catalogue; unknown_model_price") {
		t.Errorf("unknown model:\n%s", out)
	}
	if out := mustPrices(t, "show", "gpt-4o", "--provider", "some-gateway"); !strings.Contains(out, "no prices for some-gateway") {
		t.Errorf("gateway:\n%s", out)
	}
}

func TestPricesShowCall(t *testing.T) {
	c := write(t, "llmguard.yaml", house)
	args := []string{
		"show", "seven", "-c", c, "--at", "2026-11-20", "--input-tokens", "1001", "--cached", "1", "--output-tokens", "3",
		"--tool-calls", "2", "--region", "eu", "--tier", "rush",
	}
	out := mustPrices(t, args...)
	_, call, _ := strings.Cut(out, "\n\na call ")
	// 0.004076 x 3 x 1.1 = 0.0134508, + 0.02
	same(t, call, `
at service tier rush, with the price line: from 2026-11-01, over 1000 input tokens
  input          1000  x $4 / 1M                                      0.004
  cached_input      1  x $1 / 1M                                      0.000001
  output            3  x $25 / 1M                                     0.000075
  tokens                                                              0.004076
  times 3              service tier rush
  times 1.1            any region except global
  scaled                                                              0.0134508
  per_tool_call     2  x $0.01                                        0.02
  charge               USD, rounded up to 9 decimals                  0.033450800
  hold                 reserved, at the highest price that may apply  0.033460700
`)
	var s shownPrice
	if err := json.Unmarshal([]byte(mustPrices(t, append(args, "-o", "json")...)), &s); err != nil {
		t.Fatal(err)
	}
	if s.Call == nil || s.Call.Charge != 33_450_800 || s.Call.Exact != "0.0334508" || s.Call.Priced.ContextOver != 1000 || s.Call.Tokens[1].Rate != "1" {
		t.Errorf("%+v", s.Call)
	}
	batch := mustPrices(t, "show", "seven", "-c", c, "--at", "2026-11-20", "--output-tokens", "1000", "--batch")
	if !strings.Contains(batch, "charge") || !strings.Contains(batch, "0.006250000") {
		t.Errorf("batch:\n%s", batch)
	}
	if out := mustPrices(t, "show", "seven", "-c", c, "--output-tokens", "1", "--tier", "turbo"); !strings.Contains(out, `no price for service tier "turbo"`) {
		t.Errorf("unknown tier:\n%s", out)
	}
}

func TestPricesErrors(t *testing.T) {
	c := write(t, "llmguard.yaml", house)
	wrong := write(t, "wrong.yaml", house+"  - {model: free, prices: [{input: 1}]}\n")
	litellm := feedFile("litellm.json")
	modelsDev := write(t, "api.json", `{"openai": {"id": "openai", "models": {"gpt-4o": {"cost": {"input": 2.5}}}}}`)
	for _, e := range []struct{ args, want string }{
		{"show gpt4o-mini", "no price for gpt4o-mini; did you mean gpt-4o-mini"},
		{"show gpt-5 --provider groq", "no price for gpt-5 at groq; there is one at openai"},
		{"show qqqq", "list known models with `llmguard prices list`"},
		{"show rival -c " + c, "rival has different prices at a, b; choose one with --provider"},
		{"show house-later -c " + c, "starts on 2999-01-01; show it with --at 2999-01-01"},
		{"show", "needs MODEL"},
		{"show gpt-5 --input-tokens -1", "expected a number from 0"},
		{"show gpt-5 --input-tokens 3 --cached 4", "--cached, --cache-write and --cache-write-1h together exceed --input-tokens"},
		{"show gpt-5 --tier flex", "set its size with --input-tokens"},
		{"show gpt-5 --input-tokens 3 --tier flex --batch", "cannot be combined: the batch API"},
		{"show gpt-5 -o xml", "--output xml: expected one of table, json, yaml, csv, jsonl"},
		{"list --at yesterday", "--at yesterday: expected a date such as"},
		{"list --provider opnai", "no prices for provider opnai. Providers: anthropic, "},
		{"list --model gpt4o-mini", "no model matches gpt4o-mini; did you mean gpt-4o-mini"},
		{"list -c nowhere.yaml", "nowhere.yaml: no such file"},
		{"list -c " + wrong, "wrong.yaml:25:5: prices[6]: model \"free\""},
		{"import --from lite " + litellm, "--from lite: no such feed; expected genai-prices, litellm, csv"},
		{"import " + litellm, "--from is required"},
		{"import --from yaml " + c, "needs no import"},
		{"import --from litellm nowhere.json", "nowhere.json: no such file"},
		{"import --from litellm " + feedFile("genai.json"), "genai.json: litellm: "},
		{"import --from litellm " + write(t, "none.json", "{}"), "is it a file of litellm?"},
		{"import --from models.dev " + litellm, "--from: the importer of models.dev was removed in 0.2.0; use"},
		{"update models.dev -c " + c, "the importer of models.dev was removed in 0.2.0; use"},
		{"verify " + litellm + " " + modelsDev, "api.json: the importer of models.dev was removed in 0.2.0; use"},
		{"diff " + modelsDev, "api.json: the importer of models.dev was removed in 0.2.0; use"},
		{"import --from litellm --as-of today " + litellm, "--as-of today: expected a date"},
		{"import --from litellm --model nothing* " + litellm, "no model matches nothing*"},
		{"diff nowhere.json", "nowhere.json: no such file"},
		{"diff " + c, "llmguard.yaml: "},
		{"verify", "needs FILE"},
		{"verify " + litellm + " --model gpt-6-luna", "nothing to compare"},
		{"verify " + write(t, "empty.yaml", "[]"), "no prices in it"},
		{"lst", `unknown command "lst" for "llmguard prices"`},
	} {
		out, _, err := prices(t, strings.Fields(e.args)...)
		if err == nil || !strings.Contains(err.Error(), e.want) {
			t.Errorf("prices %s: %v\nwant %s", e.args, err, e.want)
		}
		if out != "" {
			t.Errorf("prices %s wrote %q besides the error", e.args, out)
		}
	}
}

// TestPricesInDocs runs every example of docs/prices.md.
func TestPricesInDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "prices.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 4 {
		t.Fatalf("%d examples", len(blocks))
	}
	for _, b := range blocks {
		if strings.HasPrefix(b[1], "prices_file:") {
			continue
		}
		c := write(t, "llmguard.yaml", b[1]+"providers: [{id: house, base_url: \"http://127.0.0.1:1\"}]\norgs: [{id: acme}]\n")
		if out := mustPrices(t, "list", "-c", c, "--at", "2027-01-01"); !strings.Contains(out, "config") && !strings.Contains(out, "unknown_model_price") {
			t.Errorf("nothing came of\n%s", b[1])
		}
	}
	shown := mustPrices(t, "show", "gpt-5.6", "--input-tokens", "300000", "--cached", "200000", "--output-tokens", "1000", "--tier", "flex", "--at", "2026-08-01")
	_, call, _ := strings.Cut(shown, "\n\na call ")
	if call == "" || !strings.Contains(string(text), call) {
		t.Errorf("docs/prices.md does not show\n%s", call)
	}
}
