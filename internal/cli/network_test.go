package cli_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

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

// TestLedgerOverTheNetwork: commands that read or correct the ledger need no file, and print
// the same as with one.
func TestLedgerOverTheNetwork(t *testing.T) {
	l := newLive(t, "spend_caps: [{name: all, amount: $50, window: 1d}]\n")
	l.call()
	await(t, "the call is settled", func() bool { return strings.Contains(l.ask("usage", "entries"), "alice") })
	done := l.ask("usage", "adjust", "--user", "alice", "--amount", "$0.25", "--reason", "for the test")
	has(t, done, "adjusted the bill of user alice of org acme by $0.25", "by ops")
	direct := map[string]string{}
	lines := []string{
		"usage", "usage --by class,user -o json", "usage entries -o csv", "usage entries --kind adjust", "usage export", "usage audit -o jsonl", "usage reconcile",
		"usage focus --by user --month " + time.Now().UTC().Format("2006-01"), "usage statement --format csv --month " + time.Now().UTC().Format("2006-01"),
		"usage caps -o json", "limits shadow", "config export", "orgs list -o csv", "audit --limit 1",
	}
	for _, line := range lines {
		direct[line] = l.must(strings.Fields(line)...)
	}
	t.Chdir(t.TempDir())
	for _, line := range lines {
		if got := l.ask(strings.Fields(line)...); got != direct[line] && line != "usage caps -o json" {
			t.Errorf("%s over the network\n%s\nwith the file\n%s", line, got, direct[line])
		}
	}
	var audit []struct{ By, Reason string }
	if err := json.Unmarshal([]byte(l.ask("usage", "audit", "-o", "json")), &audit); err != nil || len(audit) != 1 || audit[0].By != "ops" {
		t.Errorf("the correction is of %+v, %v", audit, err)
	}
	l.refusesThere("over the network, the administrator is recorded", "usage", "adjust", "--user", "alice", "--amount", "$1", "--reason", "r", "--by", "somebody")
	l.refusesThere("No such charge is on the list", "usage", "reconcile", "drop", "--call", "01m7x425asv4hapb0hzey6k903", "--reason", "r")
}

// refusesThere is refuses with the admin listener as the target.
func (l *live) refusesThere(want string, args ...string) {
	l.t.Helper()
	refuses(l.t, want, append(args, "--admin-url", l.app.AdminURL(), "--admin-key", l.admin)...)
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
