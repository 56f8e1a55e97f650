package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// addContext adds a context and passes its key in the environment, as LLMGUARD_ADMIN_KEY.
func (l *live) addContext(name, url, key string) {
	l.t.Helper()
	l.t.Setenv("LLMGUARD_ADMIN_KEY", key)
	out, notes, code := llmguard(l.t, "context", "add", name, "--url", url)
	os.Unsetenv("LLMGUARD_ADMIN_KEY")
	if code != 0 {
		l.t.Fatalf("context add: exit code %d\n%s%s", code, out, notes)
	}
}

// TestContexts: a context selects the deployment. Flags take precedence over the environment,
// and the environment over contexts.
func TestContexts(t *testing.T) {
	l := newLive(t, "")
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Chdir(t.TempDir())
	refuses(t, "llmguard context add", "orgs", "list")
	refuses(t, "context prod not found; there are no contexts", "orgs", "list", "--context", "prod")
	l.addContext("prod", l.app.AdminURL(), l.admin)
	l.addContext("gone", "http://127.0.0.1:1", "lg_admin_of_another_place")
	file := filepath.Join(home, "llmguard", "contexts.yaml")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v, want a file for its owner alone", info, err)
	}
	list, _, _ := llmguard(t, "context", "list")
	has(t, list, "prod "+l.app.AdminURL()+" yes", "gone http://127.0.0.1:1")
	if strings.Contains(list, "lg_admin_") {
		t.Errorf("a key is shown:\n%s", list)
	}
	works := func(args ...string) {
		t.Helper()
		out, notes, code := llmguard(t, append([]string{"orgs", "list"}, args...)...)
		if code != 0 || !strings.Contains(out, "acme") {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out, notes)
		}
	}
	works()
	if out, _, code := llmguard(t, "context", "use", "gone"); code != 0 {
		t.Error(out)
	}
	refuses(t, "cannot reach the admin listener", "orgs", "list")
	works("--context", "prod")
	works("-c", l.file)
	works("--admin-url", l.app.AdminURL(), "--admin-key", l.admin)
	t.Setenv("LLMGUARD_CONTEXT", "prod")
	works()
	t.Setenv("LLMGUARD_CONTEXT", "gone")
	t.Setenv("LLMGUARD_ADMIN_URL", l.app.AdminURL())
	t.Setenv("LLMGUARD_ADMIN_KEY", l.admin)
	works()
	refuses(t, "cannot reach the admin listener", "orgs", "list", "--context", "gone")
	refuses(t, "leave it out to use a running llmguard", "orgs", "list", "-c", l.file, "--context", "prod")
	os.Unsetenv("LLMGUARD_ADMIN_KEY")
	refuses(t, "LLMGUARD_ADMIN_URL or --admin-url needs an administrator's key", "orgs", "list")
	os.Unsetenv("LLMGUARD_ADMIN_URL")
	refuses(t, "context nowhere not found. Contexts: prod, gone", "context", "use", "nowhere")
	if _, notes, code := llmguard(t, "context", "remove", "gone"); code != 0 {
		t.Error(notes)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	refuses(t, "is readable by other users", "context", "list")
}
