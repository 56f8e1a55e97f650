package cli

import (
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/top"
	"github.com/llmguard/llmguard/queue"
)

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
