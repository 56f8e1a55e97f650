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

// writing are the routes of commands that change something, by what their help offers: a --reason for the audit.
