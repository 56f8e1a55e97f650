package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/admin"
)

// declared is a file for `apply`: it changes acme of the test configuration and adds an org.
const declared = `
orgs:
  - id: acme
    limits:
      - {name: daily, amount: $7}
    users:
      - {id: alice, weight: 200, limits: [{name: daily, amount: $9}]}
      - id: carol
        keys: [{id: carol-1, models: ["gpt-4o*"], expires: 2099-01-31}]
  - id: initech
    name: Initech
    over_limit: refuse
    limits: [{name: calls, metric: requests, amount: 100, window: 1h}]
    users: [{id: ann}]
`

// plan runs `apply` as a plan and returns its changes and exit code.
func (s *site) plan(args ...string) (plans []admin.Plan, code int) {
	s.t.Helper()
	out, notes, code := llmguard(s.t, append(append([]string{"apply", "--dry-run", "-o", "json"}, args...), "-c", s.file)...)
	if code != 0 && code != 2 {
		s.t.Fatalf("apply %v: exit code %d\n%s", args, code, notes)
	}
	if err := json.Unmarshal([]byte(out), &plans); err != nil {
		s.t.Fatalf("%v in %s", err, out)
	}
	return plans, code
}

// TestApply: a plan lists every difference and changes nothing. Applied changes take effect,
// are audited like individual commands, and leave no difference.
func TestApply(t *testing.T) {
	s := newSite(t, orgs)
	file := filepath.Join(t.TempDir(), "orgs.yaml")
	writeFile(t, file, declared)
	out, _, code := llmguard(t, "apply", "-f", file, "--dry-run", "-c", s.file)
	if code != 2 {
		t.Errorf("a plan with changes: exit code %d, want 2", code)
	}
	has(t, out, "~ update limit acme/daily", "amount: $5 -> $7", "~ update user acme/alice", "weight: not set -> 200", "+ create limit acme/alice/daily",
		"+ create user acme/carol", "+ create key acme/carol/carol-1", "+ create org initech", "over_limit: not set -> refuse", "+ create user initech/ann", "8 changes")
	if list := s.must("orgs", "list"); strings.Contains(list, "initech") {
		t.Fatalf("a dry run has changed something:\n%s", list)
	}
	out = s.must("apply", "-f", file, "--reason", "new team")
	has(t, out, "applied 5 changes to org acme", "applied 3 changes to org initech", "key carol-1 of user carol (shown only once): lg_live_")
	has(t, s.must("limits", "get", "daily", "--org", "acme", "--user", "alice"), "user alice enforce window 1d $9.00")
	has(t, s.must("limits", "get", "daily", "--org", "acme", "--user", "bob"), "$7.00")
	has(t, s.must("keys", "get", "carol-1", "--org", "acme"), "models gpt-4o*", "expires (UTC) 2099-01-31 00:00")
	has(t, s.must("audit", "--org", "initech"), "limit.set initech calls new team", "user.create initech ann new team", "org.create initech initech new team")
	if strings.Contains(s.must("audit", "-o", "jsonl"), "sha256:") {
		t.Error("the audit has a key's hash")
	}
	if plans, code := s.plan("-f", file, "--prune"); code != 0 || len(plans[0].Changes)+len(plans[1].Changes) != 0 {
		t.Errorf("applied again: exit code %d, %+v", code, plans)
	}
}

// TestApplyPrunes: runtime records that are not declared are removed only with --prune; what
// the file defines stays.
func TestApplyPrunes(t *testing.T) {
	s := newSite(t, orgs)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.yaml"), declared)
	s.must("apply", "-f", dir)
	writeFile(t, filepath.Join(dir, "a.yaml"), "orgs: [{id: acme, users: [{id: alice}]}]\n")
	if plans, code := s.plan("-f", dir); code != 0 {
		t.Errorf("without --prune: exit code %d, %+v", code, plans)
	}
	out := s.must("apply", "-f", dir, "--prune")
	has(t, out, "- delete limit acme/daily", "- delete limit acme/alice/daily", "- delete key acme/carol/carol-1", "- delete user acme/carol")
	has(t, s.must("limits", "get", "daily", "--org", "acme", "--user", "alice"), "$5.00")
	has(t, s.must("users", "list", "--org", "acme"), "alice", "bob")
	has(t, s.must("orgs", "list"), "initech")
}

// TestApplyRefuses: an invalid declaration changes nothing, and the error names the invalid
// part.
func TestApplyRefuses(t *testing.T) {
	s := newSite(t, orgs)
	file := filepath.Join(t.TempDir(), "orgs.yaml")
	for text, want := range map[string]string{
		"orgs: [{id: acme, limits: [{name: daily, amuont: $5}]}]":                   "amuont",
		"orgs: [{id: acme, limits: [{name: daily, amount: lots}]}]":                 "lots",
		"orgs: [{id: acme, users: [{id: carol}], limits: [{name: x, amount: $5}]}]": "window",
		"orgs: [{id: acme}, {id: acme}]":                                            "is also declared in",
		"orgs: [{name: x}]":                                                         "an org without an id",
		"providers: []":                                                             "providers",
		"orgs: [{id: acme, limits: [{name: daily, amount: $5]}]":                    "orgs.yaml",
		"{}": "expected a list `orgs`",
	} {
		writeFile(t, file, text+"\n")
		s.refuses(want, "apply", "-f", file)
	}
	s.refuses("no such file", "apply", "-f", file+".none")
	if list := s.must("users", "list", "--org", "acme"); strings.Contains(list, "carol") {
		t.Errorf("a refused declaration has changed something:\n%s", list)
	}
}

// TestExportAppliesElsewhere: the output of `config export` has no differences from its source,
// and recreates the orgs, with working keys, on an empty deployment.
func TestExportAppliesElsewhere(t *testing.T) {
	s := newSite(t, orgs)
	dir := t.TempDir()
	file, out := filepath.Join(dir, "orgs.yaml"), filepath.Join(dir, "exported.yaml")
	writeFile(t, file, declared)
	s.must("apply", "-f", file)
	s.must("limits", "set", "prepaid", "--org", "globex", "--capacity", "$200", "--refill", "$50/1h", "--mode", "shadow")
	s.must("limits", "set", "month", "--org", "globex", "--amount", "$0.000000001", "--calendar", "month", "--tz", "Europe/Berlin")
	s.must("keys", "create", "g1", "--org", "globex", "--user", "gus", "--networks", "10.0.0.0/8", "--concurrency", "3", "--scopes", "calls")
	s.must("config", "export", "--out", out)
	if plans, code := s.plan("-f", out, "--prune"); code != 0 {
		t.Errorf("where it comes from it would change %+v", plans)
	}
	other := newSite(t, "orgs: [{id: empty}]\n")
	other.must("apply", "-f", out)
	strip := func(text string) string { return strings.ReplaceAll(text, "- id: empty\n", "") }
	if got, want := strip(other.must("config", "export")), s.must("config", "export"); got != want {
		t.Errorf("applied elsewhere it is\n%s\nwant\n%s", got, want)
	}
	text, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(text), "hash: sha256:") || strings.Contains(string(text), "lg_live_") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestApplyReplays: the plan replays recent calls under the current and the declared org. A
// read-only key may plan but not apply.
func TestApplyReplays(t *testing.T) {
	l := newLive(t, "")
	for range 4 {
		l.call()
	}
	await(t, "the calls are settled", func() bool { return strings.Count(l.ask("usage", "entries"), "alice") == 4 })
	file := filepath.Join(t.TempDir(), "orgs.yaml")
	writeFile(t, file, "orgs: [{id: acme, over_limit: refuse, limits: [{name: daily, amount: $0.00002}]}]\n")
	reader := l.reader()
	out, notes, code := llmguard(t, "apply", "-f", file, "--dry-run", "--admin-url", l.app.AdminURL(), "--admin-key", reader)
	if code != 2 {
		t.Fatalf("exit code %d\n%s%s", code, out, notes)
	}
	has(t, out, "org acme: the calls of the last 7 days, replayed", "current 4 4 0", "declared 4", "held back under the declared limits", "acme/alice")
	_, notes, code = llmguard(t, "apply", "-f", file, "--admin-url", l.app.AdminURL(), "--admin-key", reader, "--replay-days", "0")
	if code != 1 || !strings.Contains(notes, "is read-only") {
		t.Errorf("a key that is read-only applies: exit code %d, %s", code, notes)
	}
	out, _, _ = llmguard(t, "config", "export", "--admin-url", l.app.AdminURL(), "--admin-key", reader)
	if strings.Contains(out, "hash") || !strings.Contains(out, "id: k1") {
		t.Errorf("a key that is read-only sees\n%s", out)
	}
}
