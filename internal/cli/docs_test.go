package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/cli"
	"github.com/llmguard/llmguard/internal/redistest"
)

// startDocs runs `llmguard docs` for the length of the test and returns the URL that it prints.
func startDocs(t *testing.T, args ...string) string {
	t.Helper()
	url, _ := notedDocs(t, args...)
	return url
}

// notedDocs also returns what the command reports before.
func notedDocs(t *testing.T, args ...string) (url, notes string) {
	t.Helper()
	var stderr bytes.Buffer
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Main(ctx, append([]string{"docs", "--no-open"}, args...), w, &stderr)
		_ = w.Close()
	}()
	t.Cleanup(func() {
		stop()
		if code := redistest.Came(t, ended); code != 0 {
			t.Errorf("llmguard docs ended with exit code %d", code)
		}
		_ = r.Close()
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, url, _ = strings.Cut(strings.TrimSpace(line), "Documentation: ")
	return url, stderr.String()
}

// TestDocsServesTheSite: pages, sidebar and search work without any other host.
func TestDocsServesTheSite(t *testing.T) {
	base, page, _ := strings.Cut(startDocs(t), "#")
	if page != "/docs/" {
		t.Errorf("the site opens at %q, want /docs/", page)
	}
	for path, want := range map[string][2]string{
		"":                         {"text/html", "search.min.js"},
		"docs/config/README.md":    {"text/markdown", "# Configuration"},
		"CHANGELOG.md":             {"text/markdown", "Unreleased"},
		"_sidebar.md":              {"text/markdown", "](/docs/first-hour.md"},
		"docs/site/search.min.js":  {"text/javascript", "MIT license"},
		"docs/site/pages.js":       {"text/javascript", `"/docs/decisions/"`},
		"docs/site/core.min.css":   {"text/css", "--"},
		"docs/decisions/README.md": {"text/markdown", "(027-lean-dependencies.md)"},
	} {
		resp, err := (&http.Client{Timeout: redistest.Bound}).Get(base + path) //nolint:forbidigo // of a test
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), want[1]) ||
			!strings.HasPrefix(resp.Header.Get("Content-Type"), want[0]) {
			t.Errorf("%q: status %d, type %q, %v, or no %q in it", path, resp.StatusCode, resp.Header.Get("Content-Type"), err, want[1])
		}
		if !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'self'") {
			t.Errorf("%q: the browser may load from other hosts: %q", path, resp.Header.Get("Content-Security-Policy"))
		}
	}
	if got := status(base+"docs/missing.md", ""); got != http.StatusNotFound {
		t.Errorf("a page that does not exist: status %d", got)
	}
}

// TestDocsOpensAPage: a page is named like its file; for an unknown name the error suggests
// similar ones.
func TestDocsOpensAPage(t *testing.T) {
	for arg, want := range map[string]string{
		"config": "/docs/config/", "docs/config/limits.md": "/docs/config/limits", "operations/LlmguardDown": "/docs/operations/LlmguardDown",
		"errors#store_full": "/docs/errors?id=store_full",
		"operations":        "/docs/operations", "internals": "/docs/internals/", "decisions/": "/docs/decisions/", "CHANGELOG.md": "/CHANGELOG",
	} {
		if url := startDocs(t, arg); !strings.HasSuffix(url, "/#"+want) {
			t.Errorf("docs %s opens %s, want %s", arg, url, want)
		}
	}
	for arg, missing := range map[string]bool{
		"errors#store_full": false, "wire#limits-on-requests": false, "config/listeners#admin": false, "decisions/": false,
		"errors#nope": true, "config#nope": true,
	} {
		if _, notes := notedDocs(t, arg); strings.Contains(notes, `has no entry "nope"`) != missing {
			t.Errorf("docs %s: got %q, want a note: %t", arg, notes, missing)
		}
	}
	out, notes, code := llmguard(t, "docs", "confg")
	if code != 2 || out != "" || !strings.Contains(notes, "did you mean config") {
		t.Errorf("a wrong page: exit code %d, %s%s", code, out, notes)
	}
	out, _, _ = llmguard(t, "__complete", "docs", "op")
	if !strings.Contains(out, "operations/LlmguardDown\n") {
		t.Errorf("the shell is not offered the pages:\n%s", out)
	}
}
