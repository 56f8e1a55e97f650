package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/pricing"
)

// feedFile returns the path of a feed in the testdata of package pricing.
func feedFile(name string) string { return filepath.Join("..", "..", "pricing", "testdata", name) }

func TestPricesImport(t *testing.T) {
	for from, name := range map[string]string{"genai-prices": "genai.json", "litellm": "litellm.json"} {
		out, stderr, err := prices(t, "import", "--from", from, "--as-of", "2026-10-07", feedFile(name))
		if err != nil {
			t.Fatal(err)
		}
		list, err := pricing.ParseEntries([]byte(out))
		if err != nil || len(list) == 0 {
			t.Fatalf("%s: %v in\n%s", from, err, out)
		}
		for _, e := range list {
			if got := e.AsOf.Format("2006-01-02"); got != "2026-10-07" {
				t.Errorf("%s: %s is as of %s", from, e.Model, got)
			}
		}
		if _, err := pricing.New("", list); err != nil {
			t.Errorf("%s: %v", from, err)
		}
		if !strings.Contains(stderr, "left out") || strings.Contains(out, "left out") {
			t.Errorf("%s: notes %q", from, stderr)
		}
		// The output of import is valid in a configuration.
		indented := "  " + strings.ReplaceAll(strings.TrimSpace(out), "\n", "\n  ")
		c := write(t, "llmguard.yaml", "providers: [{id: p, base_url: \"http://127.0.0.1:1\"}]\norgs: [{id: acme}]\nprices:\n"+indented+"\n")
		mustPrices(t, "list", "-c", c)
	}
	out, stderr, err := prices(t, "import", "--from", "litellm", "--provider", "openai", "--model", "text-*", feedFile("litellm.json"))
	if err != nil || strings.Count(out, "- model:") != 1 || stderr != "prices: 1, notes: 0\n" {
		t.Errorf("filtered: %v\n%s%s", err, out, stderr)
	}
}

func TestPricesVerifyStandardInput(t *testing.T) {
	const feed = `{"gpt-4o": {"litellm_provider": "openai", "input_cost_per_token": 2.6e-06, "output_cost_per_token": 1e-05}}`
	var out, errOut bytes.Buffer
	err := verifyPrices(priceFlags{model: "*", output: "table"}, []string{"-"}, strings.NewReader(feed), &out, &errOut)
	if err == nil || !strings.Contains(err.Error(), "price lists disagree: 1 difference") || !strings.Contains(out.String(), "2.6") {
		t.Errorf("%v\n%s%s", err, &out, &errOut)
	}
}

func TestPricesImportDate(t *testing.T) {
	for date, want := range map[string]string{"soon": "expected a date", "2999-01-01": "this date is in the future"} {
		_, _, err := prices(t, "import", "--from", "litellm", "--as-of", date, feedFile("litellm.json"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--as-of %s: %v", date, err)
		}
	}
}

func diffs(t *testing.T, args ...string) map[string]shownDifference {
	t.Helper()
	var list []shownDifference
	if err := json.Unmarshal([]byte(mustPrices(t, append([]string{"diff", "-o", "json"}, args...)...)), &list); err != nil {
		t.Fatal(err)
	}
	byField := map[string]shownDifference{}
	for _, d := range list {
		byField[d.Provider+" "+d.Model+" "+d.Field] = d
	}
	return byField
}

// TestPricesOfNoUse: errors for unreadable input give the position and the problem, without Go
// jargon.
func TestPricesOfNoUse(t *testing.T) {
	cut := `{
  "gpt-4o": {"litellm_provider": "openai",`
	for _, x := range []struct{ text, from, want string }{
		{cut, "", "line 2: the JSON ends too early: is the file whole?"},
		{cut, "litellm", "line 2: the JSON ends too early: is the file whole?"},
		{"", "litellm", "litellm: the file is empty"},
		{"<html>\n", "litellm", "line 1: not JSON: invalid character '<'"},
		{"[]", "litellm", "line 1: array where object is expected (it looks like a file of genai-prices: --from genai-prices)"},
		{"[\n1]", "genai-prices", "line 2: number where object is expected"},
		{`{"m": {"litellm_provider": "openai"}}`, "genai-prices", "object where array is expected (it looks like a file of litellm: --from litellm)"},
		{"\x1f\x8b\x08\x00\x1b[2J", "", "not a text file"},
		{"- model: m\n  prices: [{input: 1}]\n", "", "input and output prices must both be given"},
	} {
		path := write(t, "feed", x.text)
		args := []string{"diff", path}
		if x.from != "" {
			args = []string{"import", "--from", x.from, path}
		}
		_, _, err := prices(t, args...)
		if err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s of %q: %v; want %s", args[0], x.text, err, x.want)
		}
	}
}

func TestPricesDiff(t *testing.T) {
	if list := diffs(t, feedFile("../prices.yaml")); len(list) != 0 {
		t.Errorf("the catalogue differs from itself: %v", list)
	}
	own := write(t, "own.yaml", "- {model: gpt-4o, provider: openai, use: [openai-batch], prices: [{input: 77, output: 88}]}\n- {model: new, prices: [{input: 1, output: 1}]}\n")
	list := diffs(t, own)
	if d := list["openai gpt-4o input"]; d.New != "77" || d.Old == "" {
		t.Errorf("input: %+v", d)
	}
	if d := list[" new "]; d.New != "listed" || d.Old != "" {
		t.Errorf("new model: %+v", d)
	}
	if _, ok := list["openai gpt-4o times batch"]; ok {
		t.Error("a shared multiplier that both have differs")
	}
	feed := feedFile("litellm.json")
	short, all := diffs(t, feed), diffs(t, "--all", feed)
	for key, d := range short {
		if d.New == "" || d.Field == "" {
			t.Errorf("%s: shown though the feed does not state it", key)
		}
	}
	if len(all) <= len(short) {
		t.Errorf("--all shows %d, without it %d", len(all), len(short))
	}
	out, stderr, err := prices(t, "diff", "--from", "litellm", "--model", "gpt-*", feed)
	if err != nil || !strings.HasPrefix(out, "model  ") || strings.Contains(out, "claude") || !strings.Contains(stderr, "use --all to show): ") {
		t.Errorf("%v\n%s%s", err, out, stderr)
	}
}

// TestPricesDiffComparesThePresent: a feed with only today's price agrees with a catalogue that
// also has yesterday's.
func TestPricesDiffComparesThePresent(t *testing.T) {
	feed := write(t, "litellm.json", `{"gpt-5.6-sol": {"litellm_provider": "openai", "input_cost_per_token": 4e-06, "output_cost_per_token": 2e-05}}`)
	if list := diffs(t, "--at", "2026-10-01", feed); len(list) != 0 {
		t.Errorf("after the change: %v", list)
	}
	if list := diffs(t, "--at", "2026-08-01", feed); list["openai gpt-5.6-sol input"].Old != "5" {
		t.Errorf("before the change: %v", list)
	}
}

func TestPricesVerify(t *testing.T) {
	agree := write(t, "agree.json", `{"house-7b": {"litellm_provider": "house", "input_cost_per_token": 2e-06, "output_cost_per_token": 1.25e-05}}`)
	differ := write(t, "differ.csv", "model,provider,input,output\nhouse-7b,house,2,13\n")
	c := write(t, "llmguard.yaml", house)
	out, stderr, err := prices(t, "verify", "-c", c, "--at", "2026-11-20", agree)
	if err != nil || out != "" || !strings.Contains(stderr, "litellm: models 1, compared 1") {
		t.Errorf("agreeing: %v\n%s%s", err, out, stderr)
	}
	out, _, err = prices(t, "verify", "-c", c, "--at", "2026-11-20", agree, differ)
	if err == nil || !strings.Contains(err.Error(), "price lists disagree: 1 difference") {
		t.Errorf("differing: %v", err)
	}
	same(t, out, `
model     provider  price   catalogue  litellm  csv
house-7b  house     output       12.5     12.5   13
`)
	out, _, err = prices(t, "verify", "-c", c, "--at", "2026-11-20", "-o", "json", differ)
	var list []shownDisagreement
	if jsonErr := json.Unmarshal([]byte(out), &list); jsonErr != nil || err == nil || len(list) != 1 || list[0].Values[1] != (sourcedText{"csv", "13"}) {
		t.Errorf("%v, %v\n%s", err, jsonErr, out)
	}
	if out, _, err = prices(t, "verify", "-c", c, "--at", "2026-10-20", agree, agree); err == nil || !strings.Contains(out, agree) {
		t.Errorf("two files of a feed are not told apart: %v\n%s", err, out)
	}
}
