package cli_test

import (
	"net/http"
	"os"
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

// TestDoctorReady: the exit code is enough for a health check: 0 while the process is ready, 1
// when it is unreachable.
func TestDoctorReady(t *testing.T) {
	l := newLive(t, "")
	if out := l.must("doctor", "--ready", "--url", l.app.AdminURL()); out != "" {
		t.Errorf("it prints %q", out)
	}
	l.refuses("connection refused", "doctor", "--ready", "--url", "http://127.0.0.1:1")
}
