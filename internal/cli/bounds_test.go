package cli_test

import (
	"net"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/app"
)

// TestSimulateSeesLimitsOfAllOrgs: simulate applies a limit set for all orgs like an org's own
// limit, and can change its amount for one org or for all.
func TestSimulateSeesLimitsOfAllOrgs(t *testing.T) {
	s := newSite(t, "orgs: [{id: acme, over_limit: refuse, users: [{id: alice}]}, {id: globex, over_limit: refuse, users: [{id: gus}]}]\n")
	s.must("limits", "set", "calls", "--org", "all", "--metric", "requests", "--amount", "2", "--window", "1h")
	s.calls("acme", "alice", 5)
	s.calls("globex", "gus", 5)
	refused := func(want int, set string) {
		t.Helper()
		var got simulated
		s.read(&got, "simulate", "--set", set)
		if len(got.Reports) != 2 || got.Reports[0].Total.Refused != 6 || got.Reports[1].Total.Refused != want {
			t.Errorf("--set %s: got %+v, want 6 refused before and %d after", set, got, want)
		}
	}
	refused(8, "all/calls: 1")
	refused(7, "acme/calls: 1")
}

// TestCheckBesideItsOwn: check recognizes that the ports are held by a llmguard running this
// file.
func TestCheckBesideItsOwn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s := newSite(t, "listen: 127.0.0.1:0\ntimeouts: {drain: 0s, shutdown: 10s}\nadmin: {listen: \""+address+"\"}\n"+orgs)
	s.serve(app.Proxy)
	has(t, s.must("check"), "admin.listen: "+address+" is in use by this deployment")
	out, _, code := llmguard(t, "check", "-c", s.file)
	if code != 0 || strings.Contains(out, "cannot be opened") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
