package cli_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/cli"
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

// TestContextBesideAFile: no command changes the deployment of the current context next to the file of another, or
// of one that cannot be compared, until one of them is named. Commands are those that send a write when it is.
func TestContextBesideAFile(t *testing.T) {
	var wrote atomic.Int64
	stub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet:
			wrote.Add(1)
			http.Error(w, `{"error":{"message":"no"}}`, http.StatusForbidden)
		case strings.HasSuffix(r.URL.Path, "/orgs"), strings.Contains(r.URL.Path, "/jobs/job_"): // read before a write
			_, _ = w.Write([]byte(`{"id":"acme","data":[{"id":"acme"}]}`))
		default:
			http.NotFound(w, r)
		}
	}))
	defer stub.Close()
	other := newSite(t, orgs)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Chdir(filepath.Dir(other.file))
	if err := os.WriteFile("orgs.yaml", []byte(orgs), 0o600); err != nil {
		t.Fatal(err)
	}
	(&live{site: other}).addContext("prod", stub.URL, "lg_admin_of_another_place")
	run := func(args ...string) (notes string, sent bool) {
		wrote.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var text strings.Builder
		root := cli.Root()
		root.SetArgs(args)
		root.SetIn(strings.NewReader("sk-a-secret-of-its-own\n"))
		root.SetOut(&text)
		root.SetErr(&text)
		if err := root.ExecuteContext(ctx); err != nil {
			text.WriteString(err.Error())
		}
		return text.String(), wrote.Load() > 0
	}
	var writing []string
	for name, c := range leaves() {
		line := slices.Collect(strings.Lines(c.Example))
		if c.Flags().Lookup("admin-url") == nil || name == "top" || len(line) == 0 || slices.Contains(writing, name) {
			continue
		}
		for _, example := range line {
			args := words(strings.TrimSpace(example))[1:]
			if slices.Contains(args, "-c") || slices.Contains(args, "--context") || slices.Contains(args, "--watch") {
				continue
			}
			if c.Flags().Lookup("yes") != nil {
				args = append(args, "--yes")
			}
			if _, writes := run(append(slices.Clone(args), "--context", "prod")...); !writes {
				continue
			}
			writing = append(writing, name)
			notes, sent := run(args...)
			if sent || !strings.Contains(notes, stub.URL) ||
				!strings.Contains(notes, "`--context prod` or `-c llmguard.yaml`") {
				t.Errorf("%v: sent %v, error %q", args, sent, notes)
			}
			break
		}
	}
	slices.Sort(writing)
	if len(writing) < 25 {
		t.Errorf("%d commands write: %v", len(writing), writing)
	}
	if notes, _ := run("orgs", "list"); !strings.Contains(notes, "using the context prod ("+stub.URL+"), not llmguard.yaml\n") {
		t.Errorf("a read prints %q", notes)
	}
	other.url = "redis://127.0.0.1:1"
	other.write(orgs)
	if notes, sent := run("stop", "--reason", "leak"); sent || !strings.Contains(notes, "cannot be compared") {
		t.Errorf("without the file's Redis: sent %v, error %q", sent, notes)
	}
	if notes, sent := run("stop", "--context", "prod"); !sent {
		t.Errorf("with its name: %q", notes)
	}
}

// TestContextOfTheFile: next to its own file, the current context needs no name.
func TestContextOfTheFile(t *testing.T) {
	l := newLive(t, "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Chdir(filepath.Dir(l.file))
	l.addContext("here", l.app.AdminURL(), l.admin)
	if _, notes, code := llmguard(t, "users", "create", "carol", "--org", "acme"); code != 0 || notes != "" {
		t.Errorf("exit code %d, error %q", code, notes)
	}
	has(t, l.ask("audit", "--action", "user.create"), "ops user.create acme carol")
}

// writing are the routes of commands that change something, by what their help offers: a --reason for the audit.
