package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// live is a running llmguard in front of a fake provider, with a key of alice's.
type live struct {
	*site
	app        *app.App
	fake       *fakeprovider.Server
	key, admin string
}

const listeners = "listen: 127.0.0.1:0\ntimeouts: {drain: 0s, shutdown: 10s}\nadmin: {listen: \"127.0.0.1:0\"}\n"

func newLive(t *testing.T, more string) *live {
	t.Helper()
	return newLiveAt(t, listeners+more)
}

// newLiveAt is newLive with given listeners.
func newLiveAt(t *testing.T, text string) *live {
	t.Helper()
	fake := fakeprovider.New(fakeprovider.Options{})
	if err := fake.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fake.Close() })
	key := keys.New(keys.Live)
	text += "files: {store: \"" + t.TempDir() + "\"}\nproviders: [{id: openai, base_url: \"" + fake.BaseURL() + "\"}]\n" +
		"orgs: [{id: acme, limits: [{name: daily, subject: user, amount: \"$5\", window: 1d}], " +
		"users: [{id: alice, keys: [{id: k1, hash: \"" + keys.Hash(keys.Pepper{}, key) + "\"}]}]}]\n"
	l := &live{site: newSite(t, text), fake: fake, key: key}
	l.app, l.admin = l.serve(app.Proxy | app.Worker)
	return l
}

// ask runs a command against the admin listener, without a configuration file.
func (l *live) ask(args ...string) string {
	l.t.Helper()
	out, notes, code := llmguard(l.t, append(args, "--admin-url", l.app.AdminURL(), "--admin-key", l.admin)...)
	if code != 0 {
		l.t.Fatalf("llmguard %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, notes)
	}
	return out
}

// TestOverTheNetwork: with an administrator's key commands need no file, and the audit names
// the owner of the key.
func TestOverTheNetwork(t *testing.T) {
	l := newLive(t, "")
	t.Chdir(t.TempDir())
	has(t, l.ask("orgs", "list"), "acme")
	l.ask("users", "create", "carol", "--org", "acme", "--reason", "joins")
	has(t, l.ask("audit", "--action", "user.create"), "ops user.create acme carol joins")
	t.Setenv("LLMGUARD_ADMIN_KEY", l.admin)
	t.Setenv("LLMGUARD_ADMIN_URL", l.app.AdminURL()+"/")
	out, notes, code := llmguard(t, "users", "get", "carol", "--org", "acme")
	if code != 0 {
		t.Errorf("with the key from the environment: exit code %d\n%s", code, notes)
	}
	has(t, out, "carol")
	refuses(t, "`llmguard admins create` needs the configuration file and direct access to Redis", "admins", "create", "second")
}

// TestAdminRefused: the error for a wrong key or address says how to fix it.
func TestAdminRefused(t *testing.T) {
	l := newLive(t, "")
	other := fakeprovider.New(fakeprovider.Options{})
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, test := range []struct{ want, url, key string }{
		{"LLMGUARD_ADMIN_URL or --admin-url needs an administrator's key: set --admin-key or LLMGUARD_ADMIN_KEY", l.app.AdminURL(), ""},
		{"--admin-url nonsense: expected a URL such as http://127.0.0.1:9090", "nonsense", l.admin},
		{"cannot reach the admin listener", "http://127.0.0.1:1", l.admin},
		{"key", l.app.AdminURL(), keys.New(keys.Admin)},
		{"key", l.app.AdminURL(), l.key},
	} {
		_, notes, code := llmguard(t, "orgs", "list", "--admin-url", test.url, "--admin-key", test.key)
		if code != 1 || !strings.Contains(notes, test.want) || test.key != "" && strings.Contains(notes, test.key) {
			t.Errorf("%s: exit code %d, error %q; want %q and no key", test.url, code, notes, test.want)
		}
	}
	_, notes, code := llmguard(t, "orgs", "list", "--admin-url", l.app.URL(), "--admin-key", l.admin)
	if code != 1 || notes == "" {
		t.Errorf("the callers' listener: exit code %d, error %q", code, notes)
	}
	refuses(t, "is read-only", "orgs", "create", "x", "--admin-url", l.app.AdminURL(), "--admin-key", l.reader())
}

// reader creates a read-only administrator and returns the key.
func (l *live) reader() string {
	l.t.Helper()
	var made struct{ Secret string }
	l.read(&made, "admins", "create", "viewer", "--read-only")
	await(l.t, "the process knows the new administrator", func() bool {
		return status(l.app.AdminURL()+"/admin/v1/orgs", made.Secret) == http.StatusOK
	})
	return made.Secret
}

// TestKeyLifeInService: a key works as soon as it is created, both keys work during the overlap
// of a rotation, and none works once disabled.
func TestKeyLifeInService(t *testing.T) {
	l := newLive(t, "")
	models := func(key string, want int) {
		t.Helper()
		await(t, "a key's answer is as it should be", func() bool { return status(l.app.URL()+"/v1/models", key) == want })
	}
	var made, turned keyView
	if err := json.Unmarshal([]byte(l.ask("keys", "create", "ci", "--org", "acme", "--user", "alice", "-o", "json")), &made); err != nil {
		t.Fatal(err)
	}
	models(made.Secret, http.StatusOK)
	if err := json.Unmarshal([]byte(l.ask("keys", "rotate", "ci", "--org", "acme", "--overlap", "1h", "-o", "json")), &turned); err != nil {
		t.Fatal(err)
	}
	models(turned.Secret, http.StatusOK)
	models(made.Secret, http.StatusOK)
	l.ask("keys", "rotate", "ci", "--org", "acme", "--overlap", "0s", "--reason", "leaked")
	models(turned.Secret, http.StatusUnauthorized)
	models(made.Secret, http.StatusUnauthorized)
	l.ask("users", "disable", "alice", "--org", "acme")
	models(l.key, http.StatusUnauthorized)
	l.ask("users", "enable", "alice", "--org", "acme")
	models(l.key, http.StatusOK)
}

// TestConfigReload: a changed file takes effect immediately; an invalid one changes nothing.
func TestConfigReload(t *testing.T) {
	l := newLive(t, "")
	has(t, l.ask("config", "reload"), "reloaded; no changes")
	good, err := os.ReadFile(l.file)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, l.file, strings.Replace(string(good), `amount: "$5"`, `amount: "$7"`, 1))
	has(t, l.ask("config", "reload"), "reloaded; applied: orgs")
	has(t, l.ask("limits", "get", "daily", "--org", "acme", "--user", "alice"), "$7.00")
	writeFile(t, l.file, string(good)+"nonsense: true\n")
	_, notes, code := llmguard(t, "config", "reload", "--admin-url", l.app.AdminURL(), "--admin-key", l.admin)
	if code != 1 || !strings.Contains(notes, `unknown field "nonsense"`) {
		t.Errorf("a wrong file: exit code %d, error %q", code, notes)
	}
	has(t, l.ask("limits", "get", "daily", "--org", "acme", "--user", "alice"), "$7.00")
	writeFile(t, l.file, string(good))
	l.refuses("needs a running llmguard and an administrator's key", "config", "reload")
}

// TestDoctor: a healthy process has no errors; an unreachable process or Redis is reported with
// a fix.
func TestDoctor(t *testing.T) {
	l := newLive(t, "")
	var r struct {
		OK               bool
		Errors, Warnings int
		Findings         []struct{ Area, Level, What, Fix string }
	}
	l.read(&r, "doctor", "--url", l.app.AdminURL())
	areas := map[string]bool{}
	for _, f := range r.Findings {
		areas[strings.Fields(f.Area)[0]] = true
	}
	if !r.OK || r.Errors != 0 || !areas["process"] || !areas["redis"] || !areas["money"] {
		t.Errorf("a process that runs well: %+v", r)
	}
	gone := func(want string, args ...string) {
		t.Helper()
		out, _, code := llmguard(t, append([]string{"doctor", "-c", l.file}, args...)...)
		if code != 2 || !strings.Contains(out, want) || !strings.Contains(out, "-> ") {
			t.Errorf("doctor %v: exit code %d, want 2 and %q:\n%s", args, code, want, out)
		}
	}
	gone("does not answer", "--url", "http://127.0.0.1:1")
	gone("does not answer", "--url", l.app.AdminURL(), "--url", "http://127.0.0.1:1")
	if r.Warnings > 0 {
		gone("warning", "--url", l.app.AdminURL(), "--strict")
	}
	good, err := os.ReadFile(l.file)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, l.file, strings.Replace(string(good), l.url, "redis://127.0.0.1:1", 1))
	gone("redis does not answer", "--url", l.app.AdminURL())
}

// TestBatchCommands: a file is submitted only once, results are downloaded completely, and
// problems are reported by line.
func TestBatchCommands(t *testing.T) {
	l := newLive(t, "")
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
	line := func(id string) string {
		return `{"custom_id":"` + id + `","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o-mini","max_tokens":20,` +
			`"messages":[{"role":"user","content":"hello"}]}}` + "\n"
	}
	writeFile(t, in, line("a")+line("b"))
	batch := func(code int, args ...string) (string, string) {
		t.Helper()
		stdout, notes, got := llmguard(t, append(append([]string{"batch"}, args...), "--url", l.app.URL()+"/v1/", "--key", l.key)...)
		if got != code {
			t.Fatalf("batch %v: exit code %d, want %d\n%s%s", args, got, code, stdout, notes)
		}
		return stdout, notes
	}
	id, _ := batch(0, "submit", in)
	id = strings.TrimSpace(id)
	again, notes := batch(0, "submit", in)
	if strings.TrimSpace(again) != id {
		t.Errorf("the same file became batch %q, first %q", again, id)
	}
	has(t, notes, "use --again to start a new one")
	await(t, "the batch is completed", func() bool {
		text, _ := batch(0, "status", id)
		return strings.Contains(spaces.ReplaceAllString(text, " "), "status completed")
	})
	text, _ := batch(0, "status", id)
	has(t, text, "batch "+id, "requests 2 of 2, 0 failed", "cost $0.0000", "endpoint /v1/chat/completions")
	batch(0, "fetch", id, "--out", out)
	results, err := os.ReadFile(out)
	if err != nil || strings.Count(string(results), "\n") != 2 || !strings.Contains(string(results), `"custom_id":"a"`) || !strings.Contains(string(results), `"custom_id":"b"`) {
		t.Errorf("%v: the results are\n%s", err, results)
	}
	text, _ = batch(0, "list")
	has(t, text, "BATCH STATUS REQUESTS FAILED CREATED", id+" completed 2/2 0")
	_, notes = batch(1, "status", "batch_none")
	has(t, notes, "batch_none")
	_, notes = batch(1, "submit", filepath.Join(dir, "none.jsonl"))
	has(t, notes, "none.jsonl")
	refuses(t, "no API key: set OPENAI_API_KEY or --key", "batch", "list", "--url", l.app.URL()+"/v1")
	_, notes, _ = llmguard(t, "batch", "list", "--url", l.app.URL()+"/v1", "--key", "lg_live_wrong")
	if !strings.Contains(notes, "401") || strings.Contains(notes, "lg_live_wrong") {
		t.Errorf("a wrong key: %q, want 401 and not the key", notes)
	}
}

// TestDoctorReady: the exit code is enough for a health check: 0 while the process is ready, 1
// when it is unreachable.
func TestDoctorReady(t *testing.T) {
	l := newLive(t, "")
	if out := l.must("doctor", "--ready", "--url", l.app.AdminURL()); out != "" {
		t.Errorf("it prints %q", out)
	}
	l.refuses("connection refused", "doctor", "--ready", "--url", "http://127.0.0.1:1")
}
