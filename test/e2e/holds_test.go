package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestHoldScript: the script of the documents holds, extends and settles, and its repetition is charged
// nothing more.
func TestHoldScript(t *testing.T) {
	t.Parallel()
	s := newHoldStack(t)
	p := s.proxy()
	for range 2 {
		cmd := redistest.Command(t, "sh", "../../examples/curl/hold.sh")
		cmd.Env = append(os.Environ(), "LLMGUARD_URL="+p.URL, "LLMGUARD_KEY="+s.keys["alice"])
		out, err := cmd.CombinedOutput()
		first := !strings.Contains(string(out), `"status":"settled","model":null`)
		if first && (err != nil || strings.Count(string(out), `"status":"held"`) != 2 ||
			!strings.Contains(string(out), `"charged_cost_usd":"0.003964650"`)) {
			t.Fatalf("got %v, %s; want a hold, a larger one and its charge", err, out)
		}
	}
	if out := s.llmguard("usage", "--by", "model", "-o", "json", "--org", "acme"); !strings.Contains(out, "3964650") {
		t.Errorf("got %s; want the charge of one hold", out)
	}
}

// TestHoldSurvivesItsProxy: the proxy is killed between hold and settle, and another one settles.
func TestHoldSurvivesItsProxy(t *testing.T) {
	t.Parallel()
	s := newHoldStack(t)
	first := s.proxy()
	a := post(first.URL+"/holds", s.keys["alice"], `{"cost_usd":"0.75"}`)
	var hold struct{ ID string }
	if err := json.Unmarshal([]byte(a.body), &hold); err != nil || a.status != http.StatusOK {
		t.Fatalf("got status %d, %s; want a hold", a.status, a.body)
	}
	first.kill()
	second := s.proxy()
	if a := post(second.URL+"/holds", s.keys["alice"], `{"cost_usd":"0.3"}`); a.status != http.StatusTooManyRequests {
		t.Errorf("got status %d, %s; want 429: the hold of the dead proxy counts", a.status, a.body)
	}
	for range 2 {
		a := post(second.URL+"/holds/"+hold.ID+"/settle", s.keys["alice"], `{"cost_usd":"0.25"}`)
		if a.status != http.StatusOK || !strings.Contains(a.body, `"charged_cost_usd":"0.250000000"`) {
			t.Errorf("got status %d, %s; want the charge", a.status, a.body)
		}
	}
	if a := post(second.URL+"/holds", s.keys["alice"], `{"cost_usd":"0.75"}`); a.status != http.StatusOK {
		t.Errorf("got status %d, %s; want a hold of all that is left", a.status, a.body)
	}
}

func newHoldStack(t *testing.T) *stack {
	t.Helper()
	return newStack(t, fakeprovider.Options{}, `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    limits: [{name: daily, metric: cost, amount: "$1", window: 24h}]
    users: [{id: alice, keys: [{id: gateway, hash: "${key:alice}", scopes: [holds]}]}]
`)
}
