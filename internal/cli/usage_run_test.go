package cli

import (
	"encoding/csv"
	"os"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
)

// inRuns records calls of two runs, one inside the other, of a label, and of neither.
func inRuns(t *testing.T) *books {
	t.Helper()
	b := newBooks(t)
	text, err := os.ReadFile(b.file)
	if err == nil {
		err = os.WriteFile(b.file, append([]byte("labels: [{name: project, from: [key]}]\n"), text...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, one := range []budget.Call{
		{User: "alice", Run: "run_a"}, {User: "alice", Run: "run_a/run_b"}, {User: "bob", Labels: "project=web"}, {User: "bob"},
	} {
		one.Org, one.Key, one.Model = "acme", "k1", "gpt-4o"
		b.charge(one, pricing.Split{Output: pricing.Nano(100_000_000 << i)}, false)
	}
	return b
}

// TestUsageByRun: usage is grouped by run, also with an hour, a label and a class.
func TestUsageByRun(t *testing.T) {
	b := inRuns(t)
	b.wants(`
on TODAY UTC
run calls input cached output cost estimated overrun
- 2 200 120 20 $1.200000000 $0.000000000 $0.000000000
run_a/run_b 1 100 60 10 $0.200000000 $0.000000000 $0.000000000
run_a 1 100 60 10 $0.100000000 $0.000000000 $0.000000000
total 4 400 240 40 $1.500000000 $0.000000000 $0.000000000`, "--org", "acme", "--by", "run")
	for _, by := range []string{"hour,run", "run,user,label:project", "run,class", "label:project,user", "label:project"} {
		if out := b.says("--org", "acme", "--by", by); !strings.Contains(out, "$1.500000000") {
			t.Errorf("by %s: got\n%s\nwant the total of $1.50", by, out)
		}
	}
	if out := b.says("--org", "globex", "--by", "run"); !strings.Contains(out, "no spending") {
		t.Errorf("got %s, want no spending", out)
	}
}

// TestUsageFilter: usage takes the conditions of entries, and does not show refusals that they do not apply to.
func TestUsageFilter(t *testing.T) {
	b := inRuns(t)
	for text, want := range map[string]string{
		"run=run_a": "$0.300000000", "run=run_b": "$0.200000000", "user=bob": "$1.200000000", "cost>0.3 user=bob": "$1.200000000",
		"project=web": "$0.400000000", "run= cost<0.5": "$0.400000000", "user=nobody": "$0.000000000",
	} {
		for _, by := range []string{"user", "hour,label:project"} {
			out := b.says("--org", "acme", "--by", by, "--filter", text)
			_, total, _ := strings.Cut(out, "total ")
			if !strings.Contains(total, want) {
				t.Errorf("--filter %q --by %s: got\n%s\nwant the total %s", text, by, out, want)
			}
		}
	}
	for _, wrong := range [][]string{
		{"--filter", "usr=alice"}, {"--by", "label:project,label:run"}, {"--by", "label:nothing"},
	} {
		var out, notes strings.Builder
		err := run(t.Context(), append(append([]string{"usage"}, wrong...), "-c", b.file), &out, &notes)
		if err == nil || !strings.Contains(err.Error(), "label") {
			t.Errorf("%v: got %v, want an error about labels", wrong, err)
		}
	}
}

// TestEntriesHaveTheirRun: entries are written with run and labels in every format.
func TestEntriesHaveTheirRun(t *testing.T) {
	b := inRuns(t)
	for _, command := range []string{"entries", "export"} {
		rows, err := csv.NewReader(strings.NewReader(b.says(command, "--org", "acme", "-o", "csv"))).ReadAll()
		if err != nil || len(rows) != 5 {
			t.Fatalf("%s: got %v, %v", command, rows, err)
		}
		last := len(rows[0]) - 1
		got := rows[0][last-2] + " " + rows[0][last] + ", " + rows[2][last] + ", " + rows[3][last-2]
		if got != "labels run, run_a/run_b, project=web" {
			t.Errorf("%s: got %s", command, got)
		}
		if out := b.says(command, "--org", "acme", "-o", "jsonl"); !strings.Contains(out, `"run":"run_a/run_b"`) {
			t.Errorf("%s: got no run in %s", command, out)
		}
	}
	if out := b.says("entries", "--org", "acme"); !strings.Contains(out, "run_a/run_b") {
		t.Errorf("got no run in the table %s", out)
	}
}
