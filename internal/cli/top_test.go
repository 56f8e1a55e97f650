package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/top"
	"github.com/llmguard/llmguard/queue"
)

// TestTopOnce: without a terminal top prints one sample, of the selected orgs.
func TestTopOnce(t *testing.T) {
	d := newDesk(t)
	d.put("acme", "alice", "gpt-4o")
	out := d.must("top")
	for _, want := range []string{"1 waiting", "acme", "globex", "openai"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var snap top.Snapshot
	if err := json.Unmarshal([]byte(d.must("top", "--once", "--org", "acme", "-o", "json")), &snap); err != nil {
		t.Fatal(err)
	}
	if len(snap.Orgs) != 1 || snap.Orgs[0].Org != "acme" || snap.Waiting != 1 || snap.Pools[0].Waiting["async"] != 1 {
		t.Errorf("%+v", snap)
	}
	d.fails("--interval 1ms: expected", "top", "--interval", "1ms")
	d.fails("--rows 0: expected", "top", "--rows", "0")
	d.fails("nobody", "top", "--org", "nobody")
}

// TestTopChangesThings: orders in the live view go through the admin API, with the reason in
// the audit.
func TestTopChangesThings(t *testing.T) {
	d := newDesk(t)
	waiting := d.put("acme", "alice", "gpt-4o")
	other := d.put("acme", "bob", "gpt-4o")
	a, err := (&adminFlags{path: d.file}).openLocal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, c := range []struct {
		order top.Order
		want  string
	}{
		{top.Order{Kind: top.Cancel, Org: "acme", User: "alice", Reason: "stuck"}, "1 jobs cancelled"},
		{top.Order{Kind: top.Disable, Org: "acme", User: "alice", Reason: "runaway"}, "llmguard users enable alice --org acme"},
	} {
		got, err := a.act(t.Context(), c.order)
		if err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q (%v), want %q", c.order.Kind, got, err, c.want)
		}
	}
	if j, err := d.q.Job(t.Context(), "acme", waiting); err != nil || j.State != queue.Cancelled {
		t.Errorf("alice's job: %+v, %v; want it cancelled", j, err)
	}
	if j, err := d.q.Job(t.Context(), "acme", other); err != nil || j.State != queue.Queued {
		t.Errorf("bob's job: %+v, %v; want it to wait on", j, err)
	}
	audit := d.must("audit")
	for _, want := range []string{"job.cancel", "stuck", "user.update", "runaway"} {
		if !strings.Contains(audit, want) {
			t.Errorf("no %q in the audit:\n%s", want, audit)
		}
	}
	if _, err := a.act(t.Context(), top.Order{Kind: top.Override, Org: "acme", Limit: "nonsense", Add: "$5", For: "1h", Reason: "x"}); err == nil {
		t.Error("a limit that is not there was overridden")
	}
}

// TestTopGroups: --by and --filter select what a sample has, and mistakes are refused.
func TestTopGroups(t *testing.T) {
	b := inRuns(t)
	d := &desk{books: b}
	var snap top.Snapshot
	read := func(args ...string) {
		t.Helper()
		if err := json.Unmarshal([]byte(d.must(append([]string{"top", "--once", "-o", "json"}, args...)...)), &snap); err != nil {
			t.Fatal(err)
		}
	}
	read("--by", "run", "--filter", "run=run_a")
	if snap.By != "run" || len(snap.Groups) != 2 || snap.Groups[0].Value != "run_a/run_b" || snap.Calls != 2 {
		t.Errorf("got %d calls by %s in %+v, want two runs", snap.Calls, snap.By, snap.Groups)
	}
	snap = top.Snapshot{}
	read()
	if snap.By != "label:project" || len(snap.Groups) != 2 || snap.Calls != 4 {
		t.Errorf("got %d calls by %s in %+v, want all by the label", snap.Calls, snap.By, snap.Groups)
	}
	if out := d.must("top", "--by", "run"); !strings.Contains(out, "\nby run\n") || !strings.Contains(out, "run_a/run_b") {
		t.Errorf("got no list by run in\n%s", out)
	}
	d.fails("by: \"tenant\"", "top", "--by", "tenant")
	d.fails("neither a label", "top", "--filter", "usr=alice")
}
