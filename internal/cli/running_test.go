package cli_test

import (
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
