package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmguard/llmguard/internal/simulate"
)

// TestSimulateLabels: a simulation of the ledger and access log, under the same configuration, makes
// the decisions that limits by a label, and by a user's label, really made.
func TestSimulateLabels(t *testing.T) {
	t.Parallel()
	s := labeled(t, "", `
      - {name: per-project, subject: project, metric: requests, amount: 3, window: 1h}
      - {name: per-session, subject: [session, user], metric: requests, amount: 2, window: 1h}`)
	proxy := s.proxy()
	var want []string
	for i, one := range []struct{ user, project, session, refusedBy string }{
		{"alice", "one", "s1", ""},
		{"alice", "one", "s1", ""},
		{"alice", "two", "s1", "per-session"},
		{"bob", "two", "s1", ""},
		{"alice", "one", "s2", ""},
		{"bob", "one", "s3", "per-project"},
		{"bob", "two", "s1", ""},
		{"bob", "three", "s1", "per-session"},
		{"alice", "two", "s2", ""},
		{"alice", "two", "s4", "per-project"},
	} {
		status := http.StatusOK
		outcome := simulate.AtOnce
		if one.refusedBy != "" {
			status, outcome = http.StatusTooManyRequests, simulate.Refused
		}
		a := post(proxy.URL+"/chat/completions", s.keys[one.user], chat("gpt-4o-mini", "hi", small), "X-Project", one.project,
			"X-Session", one.session)
		if a.status != status {
			t.Errorf("call %d: got status %d, want %d: %s", i, a.status, status, a.body)
		}
		want = append(want, fmt.Sprint(one.user, " ", one.project, " ", one.session, " ", outcome, " ", one.refusedBy))
	}
	s.settled("acme", 6)
	proxy.terminate()
	access := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(access, []byte(proxy.log()), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	s.replay(s.export(), access).Each(func(d simulate.Decision) bool {
		project, session := d.Call.Labels.Get("project"), d.Call.Labels.Get("session")
		got = append(got, fmt.Sprint(d.Call.User, " ", project, " ", session, " ", d.Outcome, " ", d.Why))
		return true
	})
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got decisions\n%q\nwant\n%q", got, want)
	}
}
