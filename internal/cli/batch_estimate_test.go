package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// estimateOf runs `llmguard batch estimate` on a file with these lines.
func estimateOf(t *testing.T, text string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	err = run(t.Context(), append([]string{"batch", "estimate", path}, args...), &out, &errs)
	return out.String(), errs.String(), err
}

func batchLine(id, model, content string) string {
	return `{"custom_id":"` + id + `","method":"POST","url":"/v1/chat/completions","body":{"model":"` + model +
		`","max_tokens":100,"messages":[{"role":"user","content":"` + content + `"}]}}` + "\n"
}

// TestEstimate: the cost of a file by model, at live and batch prices, and with a
// configuration's prices and aliases.
func TestEstimate(t *testing.T) {
	// gpt-4o-mini costs $0.15 and $0.60 per million tokens: 100 output tokens are $0.00006, and
	// "hello" is 8 input tokens, $0.0000012.
	text := batchLine("a", "gpt-4o-mini", "hello") + batchLine("b", "gpt-4o-mini", "hello") + batchLine("c", "gpt-4o", "hello")
	out, errs, err := estimateOf(t, text)
	if err != nil || !strings.Contains(out, "gpt-4o-mini         2            16         200  $0.0001224  $0.0001224") ||
		!strings.Contains(out, "total               3") || !strings.Contains(errs, "a batch takes one model") {
		t.Errorf("%v\n%s%s", err, out, errs)
	}
	var half struct {
		Models []struct {
			Model string
			Most  string `json:"at_most_usd"`
		}
	}
	out, _, err = estimateOf(t, text, "--batch-prices", "-o", "json")
	if json.Unmarshal([]byte(out), &half) != nil || err != nil || len(half.Models) != 2 || half.Models[1].Most != "0.000061200" {
		t.Errorf("at batch prices: %v\n%s", err, out)
	}
	config := filepath.Join(t.TempDir(), "llmguard.yaml")
	if err := os.WriteFile(config, []byte(`
providers: [{id: mine, base_url: "https://models.example/v1", model_map: {fast: house-1}}]
prices: [{model: house-1, provider: mine, prices: [{input: 1, output: 10}]}]
orgs: [{id: acme, models: [fast]}, {id: other}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, err = estimateOf(t, batchLine("a", "fast", "hello"), "-c", config, "--org", "acme")
	if err != nil || !strings.Contains(out, "$0.001") || !strings.Contains(errs, "past output lengths unavailable") {
		t.Errorf("with a configuration: %v\n%s%s", err, out, errs)
	}
	if _, errs, err = estimateOf(t, batchLine("a", "house-1", "hello"), "-c", config, "--org", "acme"); err == nil || !strings.Contains(errs, "line 1: ") {
		t.Errorf("a model that the org may not use: %v\n%s", err, errs)
	}
}

// TestEstimateRefuses: the conditions under which the command fails, for scripts.
func TestEstimateRefuses(t *testing.T) {
	good := batchLine("a", "gpt-4o-mini", "hello")
	for name, test := range map[string]struct {
		text, wants string
		args        []string
	}{
		"too dear":       {text: good, args: []string{"--max", "$0.00001"}, wants: "more than --max"},
		"no money":       {text: good, args: []string{"--max", "much"}, wants: "--max"},
		"twice":          {text: good + good, wants: "1 problem"},
		"not JSON":       {text: good + "{", wants: "1 problem"},
		"no such model":  {text: batchLine("a", "nope", "x"), wants: "1 problem"},
		"empty":          {text: "\n", wants: "1 problem"},
		"another format": {text: good, args: []string{"-o", "xml"}, wants: "table, json, yaml"},
	} {
		if _, _, err := estimateOf(t, test.text, test.args...); err == nil || !strings.Contains(err.Error(), test.wants) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if out, _, err := estimateOf(t, good, "--max", "$1"); err != nil || !strings.Contains(out, "gpt-4o-mini") {
		t.Errorf("within --max: %v", err)
	}
}
