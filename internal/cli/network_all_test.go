package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/top"
)

// withoutAdmin are commands that do not use the admin API: they work with local files, built-in
// data, a price feed, or a caller's key.
var withoutAdmin = []string{
	"batch cancel", "batch estimate", "batch fetch", "batch list", "batch status", "batch submit", "config schema",
	"context add", "context list", "context remove", "context use", "dev", "docs", "help", "init", "keys new", "prices diff",
	"prices import", "prices list", "prices show", "prices verify", "version",
}

// TestEveryCommandTakesAnAdminURL: a command works over the admin API, or its help says that it
// does not.
func TestEveryCommandTakesAnAdminURL(t *testing.T) {
	for name, c := range leaves() {
		if c.HasSubCommands() || slices.Contains(withoutAdmin, name) || strings.HasPrefix(name, "completion") {
			continue
		}
		file := strings.Contains(c.Long, "does not work over the network")
		if over := c.Flags().Lookup("admin-url") != nil; over == file {
			t.Errorf("%s: --admin-url %t, the help says that it needs the file %t; want one of both", name, over, file)
		}
	}
}

// TestFileCommandsSayThatTheyNeedTheFile: with only an address and a key, the error says what
// to do.
func TestFileCommandsSayThatTheyNeedTheFile(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("LLMGUARD_ADMIN_URL", "http://127.0.0.1:1")
	t.Setenv("LLMGUARD_ADMIN_KEY", "lg_admin_x")
	for _, command := range []string{"check", "doctor", "serve", "worker", "prices update x", "admins create x", "admins delete x --yes"} {
		refuses(t, "does not work over the network", strings.Fields(command)...)
	}
	refuses(t, "`llmguard doctor` reads the configuration file and does not work over the network; remove --context", "doctor", "--context", "prod")
}

var moments = regexp.MustCompile(`\d\d:\d\d:\d\d|"[^"]*at":"[^"]*"|"held":\d+|"last_used":[^,]*|"reset_[a-z]+":[0-9.null]+`)

// TestBothWaysAnswerTheSame: commands print the same over the network and with the
// configuration file.
func TestBothWaysAnswerTheSame(t *testing.T) {
	l := newLive(t, "")
	l.spend("hi")
	month := time.Now().UTC().Format("2006-01")
	for _, command := range []string{
		"orgs export acme", "prices calibration", "jobs list", "queue", "limits get --org acme", "usage --by user", "usage entries",
		"usage --by class,user -o json", "usage entries -o csv", "usage export", "usage audit -o jsonl", "usage reconcile", "usage caps",
		"usage focus --by user --month " + month, "usage statement --format csv --month " + month, "limits shadow", "config export",
		"orgs list -o csv", "audit --limit 1",
	} {
		args := strings.Fields(command)
		await(t, "both ways answer the same to "+command, func() bool { // running processes may change something in between
			return moments.ReplaceAllString(l.must(args...), "") == moments.ReplaceAllString(l.ask(args...), "")
		})
	}
	for way, text := range map[string]string{"direct": l.must("top", "-o", "json"), "network": l.ask("top", "-o", "json")} {
		var snap top.Snapshot
		if err := json.Unmarshal([]byte(text), &snap); err != nil {
			t.Fatal(err)
		}
		if snap.Calls != 1 || len(snap.Orgs) != 1 || len(snap.Users) != 1 || len(snap.Users[0].Limits) != 1 || snap.Users[0].Limits[0].Reset == nil {
			t.Errorf("%s: %s, want one call of alice and the limit with its reset", way, text)
		}
	}
}

// spend makes a live call of alice and waits until the ledger has it.
func (l *live) spend(text string) {
	l.t.Helper()
	before := strings.Count(l.must("usage", "entries", "-o", "jsonl"), "\n")
	resp := l.post("/chat/completions", text, nil)
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		l.t.Fatalf("a call: got status %s", resp.Status)
	}
	await(l.t, "the ledger has the call", func() bool { return strings.Count(l.must("usage", "entries", "-o", "jsonl"), "\n") > before })
}

func (l *live) post(path, text string, header map[string]string) *http.Response {
	l.t.Helper()
	body := `{"model":"gpt-4o-mini","max_tokens":20,"messages":[{"role":"user","content":"` + text + `"}]}`
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, l.app.URL()+"/v1"+path, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+l.key)
	req.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := (&http.Client{Timeout: redistest.Bound}).Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	return resp
}
