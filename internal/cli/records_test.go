package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/auth/keys"
)

// orgView, userView and keyView are what -o json prints.
type (
	orgView struct {
		ID, Name, Source   string
		Disabled           bool
		Users, Keys        int
		Weight             int
		Models             []string
		OverLimit          string `json:"over_limit"`
		DefaultOutputLimit int64  `json:"default_output_limit"`
	}
	userView struct {
		ID, Org, Name, Source string
		Disabled              bool
		Keys, Weight          int
	}
	keyView struct {
		ID, Org, User, Name, Status, Secret, Last4, Source string
		Models, Scopes, Networks                           []string
		Concurrency                                        int64
		Expires                                            *time.Time
		OldUntil                                           *time.Time `json:"old_until"`
	}
)

// TestOrgRecords: an org created at runtime is listed with those of the file, and every field
// takes effect.
func TestOrgRecords(t *testing.T) {
	s := newSite(t, orgs)
	var made orgView
	s.read(&made, "orgs", "create", "initech", "--name", "Initech", "--models", "gpt-4o*,o3", "--over-limit", "refuse",
		"--default-output-limit", "512", "--weight", "150")
	if made.ID != "initech" || made.Name != "Initech" || len(made.Models) != 2 || made.OverLimit != "refuse" || made.Weight != 150 ||
		made.DefaultOutputLimit != 512 || made.Disabled {
		t.Errorf("made %+v", made)
	}
	var list []orgView
	s.read(&list, "orgs", "list")
	source := map[string]string{}
	for _, o := range list {
		source[o.ID] = o.Source
	}
	if len(list) != 3 || source["acme"] != "file" || source["initech"] == "file" {
		t.Errorf("listed %v, want acme and globex of the file and initech of Redis", source)
	}
	has(t, s.must("orgs", "get", "initech"), "gpt-4o*, o3", "refuse", "512")
	s.must("orgs", "update", "acme", "--weight", "300")
	var changed orgView
	s.read(&changed, "orgs", "update", "acme", "--unset", "weight")
	if changed.Weight != 100 {
		t.Errorf("weight %d after --unset weight, want the usual 100", changed.Weight)
	}
	s.refuses("--unset colour: expected any of name, models", "orgs", "update", "acme", "--unset", "colour")
	s.refuses("nothing to change: set at least one field, such as --name", "orgs", "update", "acme")
}

// TestUnknownIDs: every command that takes an id rejects unknown ones.
func TestUnknownIDs(t *testing.T) {
	s := newSite(t, orgs)
	for _, line := range []string{
		"orgs get nobody", "orgs disable nobody", "orgs delete nobody --yes", "orgs export nobody", "users list --org nobody",
		"users get alice --org nobody", "users get nobody --org acme", "users disable nobody --org acme", "users delete nobody --org acme --yes",
		"users create carol --org nobody", "keys list --org nobody", "keys get nobody --org acme", "keys rotate nobody --org acme",
		"keys disable nobody --org acme", "keys delete nobody --org acme --yes", "keys create --org acme --user nobody",
		"limits get --org nobody", "limits get --org acme --user nobody", "limits get nobody --org acme", "limits reset nobody --org acme --reason r",
		"limits unset nobody --org acme --yes", "limits end nobody --org acme",
		"limits override --org acme --limit nobody --add $1 --until 4h --reason r", "limits override --org nobody --limit daily --add $1 --until 4h --reason r",
		"jobs list --org nobody", "jobs get nobody", "jobs cancel nobody", "jobs replay nobody", "jobs watch nobody", "queue --org nobody", "queue --pool nobody",
		"queue dead --org nobody", "usage --org nobody", "usage entries --org nobody", "usage audit --org nobody", "usage reconcile --org nobody",
		"usage adjust --org acme --user nobody --amount 1 --reason r", "top --once --org nobody", "admins disable nobody", "admins delete nobody --yes",
		"orgs credentials list --org nobody", "orgs credentials delete nobody --org acme --yes", "webhooks dead --org nobody", "limits shadow --org nobody",
	} {
		args := strings.Fields(line)
		out, notes, code := llmguard(t, append(args, "-c", s.file)...)
		if code != 1 || out != "" || !strings.Contains(notes, "nobody") {
			t.Errorf("%s: exit code %d, output %q, error %q; want 1 and the name", line, code, out, notes)
		}
	}
}

// TestUserRecords: users can be created, changed, disabled and deleted; a user of the file
// cannot be deleted.
func TestUserRecords(t *testing.T) {
	s := newSite(t, orgs)
	var made userView
	s.read(&made, "users", "create", "carol", "--org", "acme", "--name", "Carol C.", "--weight", "200")
	if made.ID != "carol" || made.Org != "acme" || made.Name != "Carol C." || made.Weight != 200 {
		t.Errorf("made %+v", made)
	}
	s.refuses("carol", "users", "create", "carol", "--org", "acme")
	if got := s.must("users", "disable", "carol", "--org", "acme", "--reason", "left"); got != "user carol is disabled\n" {
		t.Errorf("disable prints %q", got)
	}
	has(t, s.must("users", "get", "carol", "--org", "acme"), "disabled")
	s.must("users", "enable", "carol", "--org", "acme")
	s.refuses("Confirm with --yes", "users", "delete", "carol", "--org", "acme")
	s.must("users", "delete", "carol", "--org", "acme", "--yes")
	s.refuses("carol", "users", "get", "carol", "--org", "acme")
	s.refuses("file", "users", "delete", "alice", "--org", "acme", "--yes")
	var list []userView
	s.read(&list, "users", "list", "--org", "acme")
	if len(list) != 2 || list[0].ID != "alice" || list[1].ID != "bob" {
		t.Errorf("left are %+v, want alice and bob of the file", list)
	}
}

// TestKeyRecords: a key's restrictions apply, and its secret is shown once.
func TestKeyRecords(t *testing.T) {
	s := newSite(t, orgs)
	var made keyView
	s.read(&made, "keys", "create", "ci", "--org", "acme", "--user", "bob", "--models", "gpt-4o*", "--scopes", "calls", "--networks", "10.0.0.0/8",
		"--concurrency", "4", "--expires", "90d", "--name", "CI")
	if !strings.HasPrefix(made.Secret, "lg_live_") || !strings.HasSuffix(made.Secret, made.Last4) || made.Concurrency != 4 || made.Models[0] != "gpt-4o*" ||
		made.Scopes[0] != "calls" || made.Networks[0] != "10.0.0.0/8" || made.User != "bob" || made.Status != "active" {
		t.Errorf("made %+v", made)
	}
	if days := time.Until(*made.Expires).Hours() / 24; days < 89.9 || days > 90 {
		t.Errorf("--expires 90d ends in %.2f days", days)
	}
	var shown keyView
	s.read(&shown, "keys", "get", "ci", "--org", "acme")
	if shown.Secret != "" || shown.Last4 != made.Last4 {
		t.Errorf("shown later: secret %q, ends in %s", shown.Secret, shown.Last4)
	}
	var trial keyView
	s.read(&trial, "keys", "create", "--org", "acme", "--user", "alice", "--test")
	if !strings.HasPrefix(trial.Secret, "lg_test_") || trial.ID == "" {
		t.Errorf("a test key without an id: %+v", trial)
	}
	var list []keyView
	s.read(&list, "keys", "list", "--org", "acme", "--user", "bob")
	if len(list) != 1 || list[0].ID != "ci" {
		t.Errorf("bob's keys are %+v, want ci", list)
	}
	s.must("keys", "disable", "ci", "--org", "acme", "--reason", "leaked")
	has(t, s.must("keys", "list", "--org", "acme"), "disabled")
	s.must("keys", "update", "ci", "--org", "acme", "--unset", "models,expires")
	has(t, s.must("keys", "get", "ci", "--org", "acme"), "models all", "expires (UTC) never")
	for _, text := range s.redis.HVals(t.Context(), "lg:{identity:}:records").Val() {
		if strings.Contains(text, made.Secret) || strings.Contains(text, trial.Secret) {
			t.Errorf("Redis has a key itself: %s", text)
		}
	}
}

// TestKeyFieldsRefused: the error names the invalid field.
func TestKeyFieldsRefused(t *testing.T) {
	s := newSite(t, orgs)
	for line, want := range map[string]string{
		"--scopes everything":    "everything",
		"--networks 10.0.0.0/99": "10.0.0.0/99",
		"--concurrency -1":       "concurrency",
		"--expires yesterday":    "--expires yesterday: expected tonight, tomorrow, a time of day",
		"--expires 2001-01-01":   "--expires 2001-01-01: this time is in the past",
		"--models a,,b":          "models",
	} {
		s.refuses(want, append([]string{"keys", "create", "--org", "acme", "--user", "bob"}, strings.Fields(line)...)...)
	}
	s.refuses("invalid argument \"x\" for \"--concurrency\"", "keys", "create", "--org", "acme", "--user", "bob", "--concurrency", "x")
	if list := s.must("keys", "list", "--org", "acme"); strings.Contains(list, "bob") {
		t.Errorf("a refused command has made a key:\n%s", list)
	}
}

// TestKeysNew: the hash printed for the file matches the printed key and the file's pepper.
func TestKeysNew(t *testing.T) {
	peppered := filepath.Join(t.TempDir(), "llmguard.yaml")
	writeFile(t, peppered, "auth: {peppers: [{id: p1, secret: 0123456789abcdef0123456789abcdef}]}\nproviders: [{id: a, base_url: \"http://h\"}]\norgs: [{id: a}]\n")
	for _, test := range []struct {
		args   []string
		id     string
		pepper keys.Pepper
	}{
		{nil, "key-1", keys.Pepper{}},
		{[]string{"--id", "laptop"}, "laptop", keys.Pepper{}},
		{[]string{"-c", peppered}, "key-1", keys.Pepper{ID: "p1", Secret: "0123456789abcdef0123456789abcdef"}},
	} {
		out, _, code := llmguard(t, append([]string{"keys", "new"}, test.args...)...)
		_, rest, _ := strings.Cut(out, "key (shown only once): ")
		key, _, _ := strings.Cut(rest, "\n")
		want := "- id: " + test.id + "\n      hash: " + keys.Hash(test.pepper, key) + "\n"
		if code != 0 || !strings.HasPrefix(key, "lg_live_") || !strings.Contains(out, want) {
			t.Errorf("keys new %v: exit code %d, want %q in\n%s", test.args, code, want, out)
		}
	}
	first, _, _ := llmguard(t, "keys", "new")
	if second, _, _ := llmguard(t, "keys", "new"); first == second {
		t.Error("two keys are equal")
	}
}

// TestAuditOfCommands: every change is audited with actor, action, target and reason; failed
// changes are not.
func TestAuditOfCommands(t *testing.T) {
	s := newSite(t, orgs)
	for _, line := range []string{
		"orgs create initech --reason new", "orgs update initech --weight 50 --reason slow", "users create ann --org initech --reason joins",
		"keys create k --org initech --user ann --reason first", "keys rotate k --org initech --reason leaked", "keys disable k --org initech --reason leaked",
		"limits set cap --org initech --amount $1 --window 1h --reason small", "limits override --org initech --limit cap --add $1 --until 4h --reason launch",
		"limits reset cap --org initech --reason loop", "limits unset cap --org initech --yes --reason unused", "users delete ann --org initech --yes --reason left",
		"orgs disable initech --reason over", "orgs delete initech --yes --reason gone",
	} {
		s.must(strings.Fields(line)...)
	}
	s.refuses("nobody", "users", "get", "nobody", "--org", "acme")
	var list []struct {
		ID, Actor, Action, Org, Reason string
		At                             time.Time
	}
	s.read(&list, "audit", "--org", "initech")
	var got []string
	for _, e := range list {
		got = append(got, e.Action+" "+e.Reason)
		if !strings.HasPrefix(e.Actor, "local:") || e.Org != "initech" || e.At.IsZero() || e.ID == "" {
			t.Errorf("entry %+v", e)
		}
	}
	want := "org.delete gone, org.update over, user.delete left, limit.unset unused, limit.reset loop, limit.override launch, limit.set small, " +
		"key.update leaked, key.rotate leaked, key.create first, user.create joins, org.update slow, org.create new"
	if strings.Join(got, ", ") != want {
		t.Errorf("the audit has\n%s\nwant\n%s", strings.Join(got, ", "), want)
	}
	if text := s.must("audit", "--all", "-o", "jsonl"); strings.Contains(text, "lg_live_") || strings.Contains(text, "sha256:") {
		t.Errorf("the audit has a key or a hash:\n%s", text)
	}
}

// TestAuditChoice: filters, limit and formats of `audit`.
func TestAuditChoice(t *testing.T) {
	s := newSite(t, orgs)
	for _, id := range []string{"one", "two", "three"} {
		s.must("users", "create", id, "--org", "acme")
		s.must("orgs", "update", "globex", "--name", id)
	}
	count := func(args ...string) int {
		t.Helper()
		var list []json.RawMessage
		s.read(&list, append([]string{"audit"}, args...)...)
		return len(list)
	}
	yesterday := time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	for _, test := range []struct {
		args string
		want int
	}{
		{"", 6},
		{"--org acme", 3},
		{"--action user.create", 3},
		{"--action key.create", 0},
		{"--actor nobody", 0},
		{"--limit 2", 2},
		{"--limit 0", 6},
		{"--all", 6},
		{"--from 1h", 6},
		{"--from " + yesterday, 6},
		{"--from " + yesterday + " --to " + yesterday, 0},
		{"--org globex --limit 1", 1},
	} {
		if got := count(strings.Fields(test.args)...); got != test.want {
			t.Errorf("audit %s: %d entries, want %d", test.args, got, test.want)
		}
	}
	if lines := strings.Count(s.must("audit", "-o", "jsonl"), "\n"); lines != 6 {
		t.Errorf("jsonl has %d lines, want 6", lines)
	}
	csv := s.must("audit", "-o", "csv", "--limit", "1")
	if !strings.HasPrefix(csv, "id,at,actor,action,org,target,reason,before,after,request_id,ip\n") || strings.Count(csv, "\n") != 2 {
		t.Errorf("csv:\n%s", csv)
	}
	s.refuses("--limit -1: expected 0 or more", "audit", "--limit", "-1")
	s.refuses("if any flags in the group [all limit] are set", "audit", "--all", "--limit", "3")
	s.refuses("--from x: expected a day", "audit", "--from", "x")
}

// TestAdmins: an administrator's key is shown once, listed by its last characters, and can be
// disabled or deleted.
func TestAdmins(t *testing.T) {
	s := newSite(t, orgs)
	out := s.must("admins", "create", "ops", "--read-only", "--expires", "30d", "--name", "Ops")
	_, rest, _ := strings.Cut(out, "key (shown only once): ")
	key, _, _ := strings.Cut(rest, "\n")
	if !strings.HasPrefix(key, "lg_admin_") || !strings.Contains(out, "may            read\n") {
		t.Fatalf("made\n%s", out)
	}
	list := s.must("admins", "list")
	has(t, list, "ops", "Ops", key[len(key)-4:], "read", "active")
	if strings.Contains(list, key) {
		t.Errorf("the list shows the key:\n%s", list)
	}
	has(t, s.must("admins", "disable", "ops"), "administrator ops is disabled")
	has(t, s.must("admins", "list"), "disabled")
	has(t, s.must("admins", "enable", "ops"), "administrator ops is active")
	s.refuses("Confirm with --yes, or disable it instead", "admins", "delete", "ops")
	s.must("admins", "delete", "ops", "--yes")
	if got := s.must("admins", "list"); strings.Contains(got, "ops") {
		t.Errorf("still listed:\n%s", got)
	}
}

// TestHostileNames: control characters in user-chosen names are not printed.
func TestHostileNames(t *testing.T) {
	s := newSite(t, orgs)
	name := "x\x1b[31mred\u202e"
	s.must("users", "create", "eve", "--org", "acme", "--name", "plain")
	_, notes, code := llmguard(t, "users", "update", "eve", "--org", "acme", "--name", name, "-c", s.file)
	if strings.ContainsAny(notes, "\x1b\u202e") {
		t.Errorf("the refusal repeats control characters: %q", notes)
	}
	if out := s.must("users", "list", "--org", "acme"); code == 0 && strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("the table has control characters: %q", out)
	}
}

// TestExportNeedsItsFolder: an export that cannot be written leaves no partial file.
func TestExportNeedsItsFolder(t *testing.T) {
	s := newSite(t, orgs)
	target := filepath.Join(t.TempDir(), "none", "acme.jsonl")
	s.refuses("none", "orgs", "export", "acme", "--out", target)
	dir := t.TempDir()
	s.must("orgs", "export", "acme", "--out", filepath.Join(dir, "acme.jsonl"))
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "acme.jsonl" {
		t.Errorf("the folder has %v, %v; want acme.jsonl alone", entries, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "acme.jsonl"))
	if err != nil || !strings.Contains(string(text), `{"type":"end"`) {
		t.Errorf("%v: the export does not end with its end:\n%s", err, text)
	}
}
