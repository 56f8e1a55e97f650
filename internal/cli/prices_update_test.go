package cli_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/pricing"
)

const litellmList = `{
  "gpt-4o-mini": {"litellm_provider": "openai", "mode": "chat", "max_output_tokens": 16384,
    "input_cost_per_token": 2e-07, "cache_read_input_token_cost": 7.5e-08, "output_cost_per_token": 6e-07},
  "gpt-4.1": {"litellm_provider": "openai", "mode": "chat",
    "input_cost_per_token": 2e-06, "cache_read_input_token_cost": 5e-07, "output_cost_per_token": 8e-06},
  "gpt-99": {"litellm_provider": "openai", "mode": "chat", "max_output_tokens": 1000,
    "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}
}`

// cost returns the cost of 1000 input tokens, in nano-USD.
func cost(t *testing.T, file, model string, at time.Time) pricing.Nano {
	t.Helper()
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	prices, err := app.ReadPrices(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p, err := prices.Catalogue.Lookup("openai", model, at)
	if err != nil {
		return -1
	}
	n, err := p.Charge(pricing.Usage{Input: 1000}, pricing.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPricesUpdate: a list from a URL changes prices only after confirmation, from its
// effective day, only for what it states, and is recorded in the audit.
func TestPricesUpdate(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/list.json" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(litellmList))
	}))
	defer srv.Close()
	s := newSite(t, orgs)
	feed := srv.URL + "/list.json"
	s.refusesAfter(t, "no prices_file; add a line", "prices", "update", feed, "--yes")
	s.write("prices_file: prices.yaml\n" + orgs + "providers: [{id: openai, base_url: \"http://127.0.0.1:1\"}]\n")
	file := filepath.Join(filepath.Dir(s.file), "prices.yaml")
	out := s.refusesAfter(t, "nothing was written (--yes applies without asking)", "prices", "update", feed)
	has(t, out, "model provider price now list", "gpt-4o-mini openai input 0.15 0.2")
	if _, err := os.Stat(file); err == nil {
		t.Error("it was written without approval")
	}
	day := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	before, after := day.Add(-time.Second), day.Add(2*time.Hour)
	if got := cost(t, s.file, "gpt-4o-mini", after); got != 150_000 {
		t.Fatalf("before the update: %d", got)
	}
	s.must("prices", "update", feed, "--yes", "--effective", "2027-01-01", "--reason", "new list")
	if got := cost(t, s.file, "gpt-4o-mini", before); got != 150_000 {
		t.Errorf("before the day it costs %d", got)
	}
	if got := cost(t, s.file, "gpt-4o-mini-2024-07-18", after); got != 200_000 {
		t.Errorf("from the day on it costs %d", got)
	}
	if got := cost(t, s.file, "gpt-99", after); got != -1 {
		t.Errorf("a model without a price was added unasked: %d", got)
	}
	cfg, err := config.Load(s.file)
	if err != nil {
		t.Fatal(err)
	}
	prices, err := app.ReadPrices(cfg)
	if err != nil || prices.Catalogue.Age(time.Now()) > 48*time.Hour {
		t.Errorf("%v: the prices count as %v old", err, prices.Catalogue.Age(time.Now()))
	}
	has(t, s.must("audit", "--action", "prices.update"), "local:", "prices.update", "new list")
	s.must("prices", "update", feed, "--yes", "--all", "--model", "gpt-9*")
	if got := cost(t, s.file, "gpt-99", after); got != 1_000_000 {
		t.Errorf("with --all it costs %d", got)
	}
	if got := cost(t, s.file, "gpt-4o-mini", after); got != 200_000 {
		t.Errorf("the earlier change is gone: %d", got)
	}
	s.refuses("returned 404", "prices", "update", srv.URL+"/none.json")
	s.refuses("over plain http", "prices", "update", "http://example.com/list.json")
}

// refusesAfter is refuses for a command that prints something first; it returns that output.
func (s *site) refusesAfter(t *testing.T, want string, args ...string) string {
	t.Helper()
	out, notes, code := llmguard(t, append(args, "-c", s.file)...)
	if code != 1 || !strings.Contains(notes, want) {
		t.Errorf("llmguard %s: exit code %d, error %q; want 1, %q", strings.Join(args, " "), code, notes, want)
	}
	return out
}

// TestPricesUpdateForms: a list may be in our own CSV format, or JSON or YAML entries.
func TestPricesUpdateForms(t *testing.T) {
	s := newSite(t, "prices_file: prices.yaml\n"+orgs)
	soon := time.Now().UTC().Add(48 * time.Hour)
	for name, text := range map[string]string{
		"list.csv": "model,provider,input,output,effective_from,note\ngpt-4o,openai,3.5,10,,\ngpt-4o,openai,4.5,10,2099-01-01,\"a deal, later\"\n",
		"list.json": `[{"model": "gpt-4o", "provider": "openai", "prices": [{"input": 3.5, "output": 10},
			{"effective_from": "2099-01-01", "input": 4.5, "output": 10}]}]`,
		"list.yaml": "- model: gpt-4o\n  provider: openai\n  prices:\n    - {input: 3.5, output: 10}\n    - {effective_from: 2099-01-01, input: 4.5, output: 10}\n",
	} {
		_ = os.Remove(filepath.Join(filepath.Dir(s.file), "prices.yaml"))
		file := filepath.Join(t.TempDir(), name)
		writeFile(t, file, text)
		s.must("prices", "update", file, "--yes")
		if got := cost(t, s.file, "gpt-4o", soon); got != 3_500_000 {
			t.Errorf("%s: it costs %d", name, got)
		}
		if got := cost(t, s.file, "gpt-4o", time.Date(2099, 2, 1, 0, 0, 0, 0, time.UTC)); got != 4_500_000 {
			t.Errorf("%s: later it costs %d", name, got)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad.csv")
	writeFile(t, bad, "model,provider,input,output\ngpt-4o,openai,cheap,1\n")
	s.refuses("line 2: input: price", "prices", "update", bad)
	writeFile(t, bad, "model,provider,input,output,inptu\n")
	s.refuses(`unknown column "inptu"`, "prices", "update", bad)
}

// TestPricesFileIsReloaded: a reload applies a changed price list and reports it.
func TestPricesFileIsReloaded(t *testing.T) {
	l := newLive(t, "prices_file: prices.yaml\n")
	list := filepath.Join(t.TempDir(), "list.csv")
	writeFile(t, list, "model,provider,input,output\ngpt-4o,openai,3.5,10\n")
	l.must("prices", "update", list, "--yes")
	has(t, l.ask("config", "reload"), "reloaded; applied: prices_file")
	has(t, l.ask("config", "reload"), "no changes")
}
