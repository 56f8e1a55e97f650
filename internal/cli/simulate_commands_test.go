package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimulateRefused: invalid flags are rejected before any call is replayed.
func TestSimulateRefused(t *testing.T) {
	s := newSite(t, orgs)
	log := filepath.Join(t.TempDir(), "calls.jsonl")
	writeFile(t, log, "")
	for _, test := range []struct{ want, args string }{
		{"no calls to replay; choose a longer period with --from or --days", "--org all"},
		{"no calls to replay", "--log " + log},
		{"--by colour: expected any of", "--by colour"},
		{"--top must be 0 or more, --workers 1 or more", "--top -1"},
		{"--top must be 0 or more, --workers 1 or more", "--workers 0"},
		{"--plot x.png: expected a file name that ends with .svg or .html", "--plot x.png"},
		{"--log cannot be combined with --org, --from, --to and --days, which select calls of the ledger", "--days 3 --log " + log},
		{"none.jsonl", "--log none.jsonl"},
		{"none.yaml", "--baseline none.yaml"},
	} {
		s.refuses(test.want, append([]string{"simulate", "--policy", s.file}, strings.Fields(test.args)...)...)
	}
	if _, err := os.Stat("x.png"); err == nil {
		t.Error("a refused command has written x.png")
	}
}

// TestShadowOfNothing: without limits in shadow mode the report is empty in every format.
func TestShadowOfNothing(t *testing.T) {
	s, _ := charged(t)
	var r struct {
		Calls    int
		HeldBack int `json:"held_back"`
	}
	s.read(&r, "limits", "shadow", "--org", "all")
	if r.Calls != 12 || r.HeldBack != 0 {
		t.Errorf("report %+v, want 12 calls, none held back", r)
	}
	out, notes, code := llmguard(t, "limits", "shadow", "--org", "all", "-c", s.file)
	if code != 0 || out != "" || notes != "no limit in shadow mode would have held back any of 12 calls\n" {
		t.Errorf("exit code %d, output %q, notes %q", code, out, notes)
	}
	if csv := s.must("limits", "shadow", "--org", "all", "-o", "csv"); csv != "limit,org,user,would_wait,wait_p50_ms,wait_p95_ms,wait_max_ms,would_refuse\n" {
		t.Errorf("csv %q", csv)
	}
}

// TestSimulateReplaysLedger: under generous limits every call starts immediately, and the spend
// equals the ledger's.
func TestSimulateReplaysLedger(t *testing.T) {
	s, want := charged(t)
	var answer struct {
		Reports []struct {
			Total struct{ Calls, Refused, Waited int }
		}
	}
	s.read(&answer, "simulate", "--policy", s.file, "--org", "all")
	if len(answer.Reports) != 1 || answer.Reports[0].Total.Calls != 12 || answer.Reports[0].Total.Refused != 0 || answer.Reports[0].Total.Waited != 0 {
		t.Errorf("reports %+v", answer.Reports)
	}
	has(t, s.must("simulate", "--policy", s.file, "--org", "all"), "12 calls from", want.String())
}
