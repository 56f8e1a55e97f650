package cli_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
)

// call makes one call of alice's that has a cost.
func (l *live) call() {
	l.t.Helper()
	body := strings.NewReader(`{"model":"gpt-4o-mini","max_tokens":20,"messages":[{"role":"user","content":"hello"}]}`)
	r, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, l.app.URL()+"/v1/chat/completions", body)
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+l.key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Timeout: redistest.Bound}).Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		l.t.Fatalf("status %d", resp.StatusCode)
	}
}

// TestCompletion: the shell completes ids from a running llmguard.
func TestCompletion(t *testing.T) {
	l := newLive(t, "")
	there := []string{"--admin-url", l.app.AdminURL(), "--admin-key", l.admin}
	for line, want := range map[string]string{
		"orgs get": "acme\n", "usage --org": "acme\n", "users get --org acme": "alice\n", "keys list --org acme --user": "alice\n",
		"limits get --org acme": "daily\n", "limits override --org acme --limit": "daily\n", "usage -o": "table\n",
	} {
		args := append([]string{"__complete"}, strings.Fields(line)[:2]...)
		args = append(append(args, there...), strings.Fields(line)[2:]...)
		if strings.HasPrefix(line, "usage") {
			args = append(append([]string{"__complete", "usage"}, there...), strings.Fields(line)[1:]...)
		}
		out, notes, _ := llmguard(t, append(args, "")...)
		if !strings.Contains(out, want) {
			t.Errorf("%s: completes to %q, %s", line, out, notes)
		}
	}
}

// TestVersionFlag: --version prints version, commit and Go version on one line.
func TestVersionFlag(t *testing.T) {
	out, notes, code := llmguard(t, "--version")
	if code != 0 || !strings.HasPrefix(out, "llmguard ") || !strings.Contains(out, "commit ") || !strings.Contains(out, " go1.") || strings.Count(out, "\n") != 1 {
		t.Errorf("%d %q %q", code, out, notes)
	}
}
