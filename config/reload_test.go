package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestReload(t *testing.T) {
	base := "redis: {addresses: [\"127.0.0.1:6379\"]}\nprices: [{model: a, prices: [{input: 1, output: 2}]}]\n" + strings.TrimSpace(minimal) + "\n"
	f := func(change func(string) string, changed, restart string) *Config {
		t.Helper()
		running, next := mustParse(t, base), mustParse(t, change(base))
		r := running.Reload(next)
		if got := strings.Join(r.Changed, " "); got != changed {
			t.Errorf("changed: %q, want %q", got, changed)
		}
		if got := strings.Join(r.NeedsRestart, " "); got != restart {
			t.Errorf("needs a restart: %q, want %q", got, restart)
		}
		if !reflect.DeepEqual(running, mustParse(t, base)) || !reflect.DeepEqual(next, mustParse(t, change(base))) {
			t.Error("one of the two was changed")
		}
		return r.Config
	}
	replace := func(old, new string) func(string) string {
		return func(text string) string { return strings.Replace(text, old, new, 1) }
	}
	f(func(s string) string { return s }, "", "")
	f(func(s string) string { return "# a comment above\n\n" + s }, "", "")
	f(replace("input: 1", "input: 3"), "prices", "")
	f(replace("id: acme", "id: acme, weight: 200"), "orgs", "")
	// A change of what all orgs inherit changes them.
	f(func(s string) string { return s + "store: {on_failure: allow, journal_dir: /tmp/j}\n" }, "store.on_failure orgs", "store.journal_dir")
	c := f(func(s string) string {
		return strings.Replace(s, "6379", "6380", 1) + "listen: 127.0.0.1:1\nqueue: {lease: 5s, max_attempts: 7}\nlog: {level: debug, format: text}\n"
	}, "queue.max_attempts log.level", "listen redis.addresses queue.lease log.format")
	if c.Redis.Addresses[0] != "127.0.0.1:6379" || c.Queue.MaxAttempts != 7 || c.Listen != "127.0.0.1:8080" || c.Log != (Log{Level: "debug", Format: "json"}) {
		t.Errorf("to run: %+v", c)
	}
}

// TestRestartOnly fixes which fields need a restart: docs and reload use the same tags.
func TestRestartOnly(t *testing.T) {
	list := RestartOnly()
	for _, want := range []string{"listen", "admin.listen", "redis.addresses", "redis.tls.ca_file", "store.hold_lease", "files.store", "cache.store"} {
		if !slices.Contains(list, want) {
			t.Errorf("%s can be changed live", want)
		}
	}
	for _, live := range []string{"orgs", "providers", "prices", "spend_caps", "kill_switch", "auth.peppers", "queue.shares.batch", "queue.org_share", "log.level"} {
		if slices.Contains(list, live) {
			t.Errorf("%s needs a restart", live)
		}
	}
}
