package cli_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/app"
)

// TestUnboundedOrgIsNamed: creating an org without any spending bound prints a warning, and
// doctor lists the org. A limit for all orgs silences both.
func TestUnboundedOrgIsNamed(t *testing.T) {
	s := newSite(t, orgs)
	create := func(org string) (notes string) {
		t.Helper()
		_, notes, code := llmguard(t, "orgs", "create", org, "-c", s.file)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, notes)
		}
		return notes
	}
	has(t, create("initech"), "warning: nothing bounds what org initech can spend", "llmguard limits set month --org initech --amount '$100' --calendar month")
	has(t, s.must("orgs", "get", "initech"), "worst case per hour unbounded")
	out, _, _ := llmguard(t, "doctor", "-c", s.file, "--url", "http://127.0.0.1:1")
	has(t, out, "nothing bounds what org initech can spend", "nothing bounds what org globex can spend")

	has(t, s.must("limits", "set", "hour", "--org", "all", "--amount", "$20", "--window", "20m", "--reason", "a bound for all"), "hour org enforce window 20m $20.00 - - - all")
	if notes := create("hooli"); notes != "" {
		t.Errorf("with a limit of every org: said %q", notes)
	}
	has(t, s.must("orgs", "get", "hooli"), "worst case per hour $60.00")
	has(t, s.must("limits", "get", "--org", "hooli"), "$20.00 0s all")
	has(t, s.must("audit", "--org", "all"), "limit.set", "a bound for all")
	out, _, _ = llmguard(t, "doctor", "-c", s.file, "--url", "http://127.0.0.1:1")
	if strings.Contains(out, "nothing bounds") {
		t.Errorf("with a limit of every org, doctor says\n%s", out)
	}
	var o struct {
		WorstHour *int64 `json:"worst_hour"`
		Unbounded bool
	}
	s.read(&o, "orgs", "get", "globex")
	if o.Unbounded || o.WorstHour == nil || *o.WorstHour != 60_000_000_000 {
		t.Errorf("got %+v, want $60 an hour", o)
	}
}

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

// TestCheckOfPorts: a port held by llmguard with the same file is fine; a port held by another
// program is a warning, and an error with --live.
func TestCheckOfPorts(t *testing.T) {
	var taken [2]string
	for i := range taken {
		other := httptest.NewServer(http.NotFoundHandler())
		defer other.Close()
		taken[i] = other.Listener.Addr().String()
	}
	s := newSite(t, "listen: "+taken[0]+"\nadmin: {listen: \""+taken[1]+"\"}\n"+orgs)
	type finding struct{ Area, Level, What string }
	check := func(args ...string) (ports []finding) {
		t.Helper()
		out, _, _ := llmguard(t, append([]string{"check", "-c", s.file, "-o", "json"}, args...)...)
		var r struct{ Findings []finding }
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, f := range r.Findings {
			if f.Area == "machine" {
				ports = append(ports, f)
			}
		}
		return ports
	}
	for _, tc := range []struct {
		level string
		args  []string
	}{{"warning", nil}, {"error", []string{"--live"}}} {
		if got := check(tc.args...); len(got) != 2 || got[0].Level != tc.level || !strings.Contains(got[0].What, "listen: "+taken[0]+" cannot be opened") {
			t.Errorf("check %v: got %+v, want both ports taken, %s", tc.args, got, tc.level)
		}
	}
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
	has(t, s.must("check"), "admin.listen: "+address+" is in use: llmguard already runs here with this file")
	out, _, code := llmguard(t, "check", "-c", s.file)
	if code != 0 || strings.Contains(out, "cannot be opened") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
