package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// TestReloadRunsAndRequests: the bounds of runs and of limit requests change at a reload, for runs that exist, too.
func TestReloadRunsAndRequests(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, `
providers: [{id: openai, base_url: "${provider}", api_key: "${provider_key}"}]
defaults: {raise_requests: {mode: refuse}}
orgs:
  - id: acme
    runs: {max_depth: 1, max_open: 2, max_amount: $1, max_life: 1h}
    limits: [{name: day, subject: user, window: 1d, amount: "$10"}]
    users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}]
`)
	p := s.proxy()
	reload := func(old, changed string) {
		t.Helper()
		hash := s.rewrite(func(text string) string { return strings.Replace(text, old, changed, 1) })
		p.hangUp()
		p.awaitValue("llmguard_config_hash", hash)
	}
	create := func(key, body string) answer { return post(p.URL+"/keys/children", key, body) }
	run := s.child(p, "alice", `{"amount": "$1"}`)
	s.child(p, "alice", `{"amount": "$1"}`)
	inside := `{"amount": "$0.1"}`
	want(t, "a run inside a run", create(run.Key, inside), 400, "run_too_deep")
	want(t, "a third run", create(s.keys["alice"], inside), 400, "too_many_runs")
	want(t, "a large run", create(s.keys["alice"], `{"amount": "$1.5"}`), 400, "invalid_value")
	want(t, "a long run", create(s.keys["alice"], `{"amount": "$1", "expires_in": "2h"}`), 400, "invalid_value")
	reload("{max_depth: 1, max_open: 2, max_amount: $1, max_life: 1h}", "{max_depth: 2, max_open: 3, max_amount: $2, max_life: 3h}")
	want(t, "a run inside a run", create(run.Key, inside), 200, "")
	want(t, "a large, long, third run", create(s.keys["alice"], `{"amount": "$1.5", "expires_in": "2h"}`), 200, "")
	want(t, "a fourth run", create(s.keys["alice"], inside), 400, "too_many_runs")
	s.llmguard("orgs", "update", "acme", "--runs-max-open", "4", "--runs-max-amount", "$0.5", "--reason", "fleet")
	out := s.llmguard("orgs", "update", "acme", "--runs-max-life", "2h")
	for _, fact := range []string{`max open +4`, `max depth +2`, `max amount +\$0\.5`, `max life +2h`} {
		if !regexp.MustCompile("runs " + fact).MatchString(out) {
			t.Errorf("got %s, want runs %s", out, fact)
		}
	}
	until(t, "a fourth run is allowed", func() bool { return create(s.keys["alice"], inside).status == 200 })
	want(t, "a large run", create(s.keys["alice"], `{"amount": "$0.6"}`), 400, "invalid_value")
	file := filepath.Join(t.TempDir(), "acme.yaml")
	if err := os.WriteFile(file, []byte("orgs: [{id: acme, runs: {max_life: 90m}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := s.llmguard("apply", "-f", file, "--replay-days", "0"); !strings.Contains(out, "max_life") {
		t.Errorf("got %s, want the change", out)
	}
	if out := s.llmguard("orgs", "get", "acme"); !regexp.MustCompile(`runs max life +1h30m`).MatchString(out) {
		t.Errorf("got %s, want what was declared", out)
	}
	reload("{max_depth: 2,", "{max_depth: 0,")
	want(t, "a run of an org without them", create(s.keys["alice"], inside), 403, "runs_not_allowed")
	want(t, "a call of a run that exists", runCall(p, run.Key), 200, "")

	ask := func(body string) answer { return post(p.URL+"/limit_requests", s.keys["alice"], body) }
	want(t, "a request", ask(`{"limit": "day", "amount": "$3", "reason": "r"}`), 403, "limit_requests_disabled")
	reload("{mode: refuse}", "{mode: allow, max_amount: $2}")
	want(t, "a large request", ask(`{"limit": "day", "amount": "$3", "reason": "r"}`), 400, "invalid_value")
	reload("max_amount: $2}}", "max_amount: $4}}")
	want(t, "the same request", ask(`{"limit": "day", "amount": "$3", "reason": "r"}`), 201, "")
}

// TestLimitRequestsSurviveRestart: open requests, and their number in the console, survive a killed proxy.
func TestLimitRequestsSurviveRestart(t *testing.T) {
	t.Parallel()
	s, _ := asking(t)
	ops := keys.New(keys.Admin)
	s.replace(`admin: {listen: "127.0.0.1:0"}`,
		`admin: {listen: "127.0.0.1:0", keys: [{id: ops, hash: "`+keys.Hash(keys.Pepper{}, ops)+`"}]}`)
	badge := func(p *process, count string) {
		t.Helper()
		b := newBrowser(t, p.Admin)
		b.signIn(ops)
		shown := `>Requests <span class="tag full">` + count + `</span></a>`
		if count == "" {
			shown = `>Requests</a>`
		}
		until(t, "the console shows the count "+count, func() bool {
			_, text := b.page("/console/")
			return strings.Contains(text, shown)
		})
	}
	p := s.proxy()
	badge(p, "")
	alice, bob := s.asks(p, "alice", `{"amount":"$10","reason":"r"}`), s.asks(p, "bob", `{"amount":"$3","reason":"r"}`)
	badge(p, "2")
	p.kill()
	p = s.proxy()
	badge(p, "2")
	for user, id := range map[string]string{"alice": alice.ID, "bob": bob.ID} {
		if got := s.wanted(p, user, id); got.Status != "pending" {
			t.Errorf("after the restart: got %+v, want it pending", got)
		}
	}
	s.llmguard("limits", "requests", "approve", alice.ID)
	until(t, "the call of the approved user goes through", func() bool {
		return post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", `"max_tokens":10`)).status == http.StatusOK
	})
	badge(p, "1")
	s.llmguard("limits", "requests", "deny", bob.ID, "--reason", "no money")
	badge(p, "")
}
