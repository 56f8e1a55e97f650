package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/top"
)

// TestTopOnce: without a terminal it prints one sample, of the orgs asked for.
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
