package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/cli"
)

// TestInitForEachProvider: a provider key in the environment adds its provider, by reference,
// and the file passes check.
func TestInitForEachProvider(t *testing.T) {
	variables := map[string]string{
		"OPENAI_API_KEY": "openai", "ANTHROPIC_API_KEY": "anthropic", "GEMINI_API_KEY": "google", "MISTRAL_API_KEY": "mistral", "DEEPSEEK_API_KEY": "deepseek", "GROQ_API_KEY": "groq",
	}
	for name, id := range variables {
		for other := range variables {
			t.Setenv(other, "")
		}
		t.Setenv(name, "sk-canary-0123456789")
		file := filepath.Join(t.TempDir(), "llmguard.yaml")
		out, notes, code := llmguard(t, "init", "-c", file)
		if code != 0 || !strings.Contains(out, "("+id+")") || strings.Contains(out+notes, "canary") {
			t.Errorf("init with %s: exit code %d\n%s%s", name, code, out, notes)
		}
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "api_key: ${"+name+"}") || strings.Contains(string(text), "canary") {
			t.Errorf("init with %s, %v, wrote\n%s", name, err, text)
		}
		var r struct {
			OK     bool
			Errors int
		}
		out, _, code = llmguard(t, "check", "-c", file, "-o", "json")
		err = json.Unmarshal([]byte(out), &r)
		if err != nil || code != 0 || !r.OK || r.Errors > 0 {
			t.Errorf("check of init with %s: exit code %d, %v\n%s", name, code, err, out)
		}
	}
}

// TestInitKeyOpens: the key that init prints matches the hash that it writes.
func TestInitKeyOpens(t *testing.T) {
	s := newSite(t, "")
	t.Setenv("REDIS_URL", s.url)
	t.Setenv("OPENAI_API_KEY", "sk-0123456789")
	out, notes, code := llmguard(t, "init", "-c", s.file, "--force")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, notes)
	}
	_, rest, _ := strings.Cut(out, "shown only once):\n\n  ")
	key, _, _ := strings.Cut(rest, "\n")
	var list []keyView
	s.read(&list, "keys", "list", "--org", "acme")
	if len(list) != 1 || list[0].ID != "alice-1" || !strings.HasPrefix(key, "lg_live_") {
		t.Errorf("keys of the file %+v, key shown %q", list, key)
	}
	has(t, s.must("limits", "get", "--org", "acme", "--user", "alice"), "org-bucket", "user-hour", "user-day", "shadow")
}

// TestInitLeavesNothing: a missing folder or a file in the way is an error that names it.
func TestInitLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	refuses(t, "none", "init", "-c", filepath.Join(dir, "none", "llmguard.yaml"))
	file := filepath.Join(dir, "llmguard.yaml")
	writeFile(t, file, "mine\n")
	refuses(t, file+" already exists. Overwrite it with --force, or choose another file with --config", "init", "-c", file)
	text, err := os.ReadFile(file)
	if err != nil || string(text) != "mine\n" {
		t.Errorf("%v: the file is %q now", err, text)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v: the folder has %v, want the file alone", err, entries)
	}
}

// TestSchemaCoversStarter: the schema is an object that describes each setting that init
// writes.
func TestSchemaCoversStarter(t *testing.T) {
	out, _, code := llmguard(t, "config", "schema")
	var schema struct {
		Schema     string `json:"$schema"`
		Properties map[string]json.RawMessage
	}
	err := json.Unmarshal([]byte(out), &schema)
	if err != nil || code != 0 || schema.Schema == "" {
		t.Fatalf("exit code %d, %v", code, err)
	}
	for _, name := range []string{"listen", "admin", "redis", "store", "auth", "queue", "providers", "prices", "spend_caps", "orgs"} {
		if schema.Properties[name] == nil {
			t.Errorf("the schema has no %s", name)
		}
	}
}

// TestCompletionOfferings: shells complete commands, flags, and the values of flags with a
// fixed choice.
func TestCompletionOfferings(t *testing.T) {
	for line, want := range map[string]string{
		"":                                  "usage\tShow spending by org",
		"keys ro":                           "rotate\tReplace a key",
		"keys rotate k --ov":                "--overlap",
		"prices list -o ":                   "yaml",
		"prices show gpt-4o-":               "gpt-4o-mini",
		"batch estimate in.jsonl --output ": "json",
		"limits ":                           "suggest\t",
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		out, _, code := llmguard(t, args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("completion of %q: exit code %d, want %q in\n%s", line, code, want, out)
		}
	}
}

// input runs a command line with text on standard input.
func input(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	root := cli.Root()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestEstimateFromStandardInput: "-" is standard input, and --max fails a file that can cost
// more.
func TestEstimateFromStandardInput(t *testing.T) {
	line := `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o","max_tokens":1000000,"messages":[{"role":"user","content":"hi"}]}}` + "\n"
	for _, test := range []struct{ text, most, want string }{
		{line, "$1000", ""},
		{line, "$0.01", "more than --max $0.010000000"},
		{line, "cheap", "--max: "},
		{line + line, "$1000", "the file would be rejected: 1 problem"},
		{"not JSON\n", "$1000", "the file would be rejected"},
		{"", "$1000", "the file would be rejected"},
	} {
		_, err := input(t, test.text, "batch", "estimate", "-", "--max", test.most)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d bytes, --max %s: %v, want %q", len(test.text), test.most, err, test.want)
		}
	}
}

// TestVersionForms: table, JSON and YAML print the same Go version.
func TestVersionForms(t *testing.T) {
	var b struct{ Go, Platform string }
	out, _, code := llmguard(t, "version", "-o", "json")
	err := json.Unmarshal([]byte(out), &b)
	if err != nil || code != 0 || b.Go == "" {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	for _, form := range []string{"table", "yaml"} {
		out, _, _ := llmguard(t, "version", "-o", form)
		has(t, out, b.Go, b.Platform)
	}
}
