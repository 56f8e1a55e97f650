package cli_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// calls records n calls of a user, at $0.000001 each.
func (s *site) calls(org, user string, n int) {
	s.t.Helper()
	for range n {
		s.charge(ledger.Call{Org: org, User: user, Key: "k", Model: "gpt-4o", Provider: "openai", Endpoint: "chat.completions"},
			pricing.Split{Output: 1000}, pricing.Usage{Output: 1, Requests: 1})
	}
}

// simulated is the output of `simulate -o json`.
type simulated struct {
	Reports []struct {
		Policy string
		Total  struct {
			Calls   int
			Refused int
			GaveUp  int          `json:"gave_up"`
			Spend   pricing.Nano `json:"spend_nano"`
		}
	}
}

// TestSimulateSet: a changed amount needs no second file, and is compared with the current
// amount.
func TestSimulateSet(t *testing.T) {
	l := newLive(t, "")
	for range 3 {
		l.call()
	}
	await(t, "the calls are settled", func() bool { return strings.Count(l.ask("usage", "entries"), "alice") == 3 })
	l.ask("orgs", "update", "acme", "--over-limit", "refuse")
	var got simulated
	l.read(&got, "simulate", "--set", "acme/daily: $0.00002")
	if len(got.Reports) != 2 || got.Reports[0].Total.Refused != 0 || got.Reports[1].Total.Refused == 0 || got.Reports[1].Total.Calls != 3 {
		t.Errorf("%+v", got)
	}
	l.read(&got, "simulate", "--set", "acme/hourly: {subject: user, amount: $0.00002, window: 1h}")
	if len(got.Reports) != 2 || got.Reports[0].Total.Refused != 0 || got.Reports[1].Total.Refused == 0 {
		t.Errorf("an added limit: %+v", got)
	}
	l.refuses("no such limit; known: acme/daily. To add one, write its fields", "simulate", "--set", "acme/hourly: $1")
	l.refuses("no such limit", "simulate", "--set", "acme/nobody/hourly: {amount: $1, window: 1h}")
	l.refuses("amount of what time?", "simulate", "--set", "acme/hourly: {amount: $1}")
	l.refuses(`unknown field "windw"; did you mean "window"?`, "simulate", "--set", "acme/hourly: {amount: $1, windw: 1h}")
	l.refuses("expected ORG/LIMIT: AMOUNT", "simulate", "--set", "daily $1")
	l.refuses("did you mean", "simulate", "--set", "acme/daily: 5")
	l.refuses("--policy or --set is required", "simulate")
}

// TestSimulateShadow: a limit in shadow mode refuses nothing, which the command says, until --set enforces it.
func TestSimulateShadow(t *testing.T) {
	s := newSite(t, orgs)
	s.must("orgs", "update", "acme", "--over-limit", "refuse")
	s.must("limits", "set", "few", "--org", "acme", "--metric", "requests", "--amount", "2", "--window", "1h", "--mode", "shadow")
	s.calls("acme", "alice", 5)
	const note = "in shadow mode, they refused nothing in this replay: acme/few. Enforce one with --set 'acme/few: enforce'"
	var got simulated
	for set, refused := range map[string]int{"acme/few: 1": 0, "acme/few: enforce": 3, "acme/few: {mode: enforce, amount: 1}": 4} {
		out, notes, code := llmguard(t, "simulate", "-c", s.file, "--set", set, "-o", "json")
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.Reports[1].Total.Refused != refused {
			t.Errorf("--set %s: exit code %d, %v, got %s, want %d refused", set, code, err, out, refused)
		}
		if said := strings.Contains(notes, note); said != (refused == 0) {
			t.Errorf("--set %s: notes %q", set, notes)
		}
	}
}

// TestSimulateOrgsOnly: a policy of orgs alone replaces these in the configuration and in Redis; other orgs, users and
// keys stay.
func TestSimulateOrgsOnly(t *testing.T) {
	s := newSite(t, orgs)
	s.must("orgs", "create", "initech", "--over-limit", "refuse")
	s.must("users", "create", "ann", "--org", "initech")
	s.must("limits", "set", "calls", "--org", "initech", "--metric", "requests", "--amount", "4", "--window", "1h")
	s.calls("initech", "ann", 5)
	s.calls("acme", "alice", 2)
	policy := filepath.Join(t.TempDir(), "orgs.yaml")
	writeFile(t, policy, "orgs: [{id: initech, over_limit: refuse, limits: [{name: calls, metric: requests, amount: 1, window: 1h}]}]\n")
	var got simulated
	s.read(&got, "simulate", "--policy", policy, "--baseline", s.file)
	if before, after := got.Reports[0].Total, got.Reports[1].Total; before.Refused != 1 || after.Refused != 4 || after.Calls != 7 {
		t.Errorf("%+v, want 1 of 7 calls refused before and 4 after", got)
	}
	writeFile(t, policy, "orgs: [{id: initech, limits: [{name: calls, amount: $1, widow: 1h}]}]\n")
	_, errs, code := llmguard(t, "simulate", "-c", s.file, "--policy", policy)
	if code != 1 || !strings.Contains(errs, `orgs[0].limits[0]: unknown field "widow"; did you mean "window"?`) || strings.Contains(errs, "providers") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// TestSimulateSeesRecordedOrgs: orgs and limits that exist only in Redis apply like those of
// the file.
func TestSimulateSeesRecordedOrgs(t *testing.T) {
	s := newSite(t, orgs)
	s.must("orgs", "create", "initech", "--over-limit", "refuse")
	s.must("users", "create", "ann", "--org", "initech")
	s.must("keys", "create", "ann-1", "--org", "initech", "--user", "ann")
	s.must("limits", "set", "calls", "--org", "initech", "--metric", "requests", "--amount", "2", "--window", "1h")
	s.calls("initech", "ann", 5)
	var got simulated
	s.read(&got, "simulate", "--policy", s.file)
	if total := got.Reports[0].Total; total.Calls != 5 || total.Refused != 3 {
		t.Errorf("%+v, want 5 calls and 3 of them refused", total)
	}
	s.read(&got, "simulate", "--set", "initech/calls: 4")
	if total := got.Reports[1].Total; total.Refused != 1 {
		t.Errorf("%+v, want 1 refused", total)
	}
}

// TestPolicyNeedsNoEnvironment: a policy loads without the secrets and addresses of its
// environment, with the file's defaults.
func TestPolicyNeedsNoEnvironment(t *testing.T) {
	s := newSite(t, orgs)
	s.calls("acme", "alice", 1)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, policy, `
redis: {addresses: ["${POLICY_REDIS:-127.0.0.1:6379}"]}
admin: {listen: "${POLICY_LISTEN:-127.0.0.1:9090}", metrics_token: "${POLICY_TOKEN}"}
providers: [{id: openai, base_url: "http://127.0.0.1:1", api_key: "file:/run/secrets/none"}]
queue: {seal_keys: [{id: s1, secret: "${POLICY_SEAL}"}]}
auth: {peppers: [{id: p1, secret: "${POLICY_PEPPER}"}]}
orgs: [{id: acme, webhooks: [{url: "https://example.com/hook", secrets: ["${POLICY_HOOK}"]}], users: [{id: alice, keys: [{id: a, hash: "${POLICY_A}"}, {id: b, hash: "${POLICY_B}"}]}]}]
`)
	var got simulated
	s.read(&got, "simulate", "--policy", policy)
	if len(got.Reports) != 1 || got.Reports[0].Total.Calls != 1 {
		t.Errorf("%+v", got)
	}
}

// TestOwnLimitOfARecordedLimit: a user's own amount for a runtime limit keeps the limit's
// window, whatever the user and limit are named.
func TestOwnLimitOfARecordedLimit(t *testing.T) {
	s := newSite(t, orgs)
	s.must("limits", "set", "weekly", "--org", "acme", "--subject", "user", "--amount", "$20", "--window", "7d")
	has(t, s.must("limits", "set", "weekly", "--org", "acme", "--user", "alice", "--amount", "$80"), "user alice enforce window 7d $80.00")
}
