package admin_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/admin"
)

const twoLabels = "labels: [{name: project, from: [key]}, {name: run, from: [key], usage: true}]\n"

// inRuns makes calls of a run, of one inside it, and of a project.
func (d *deployment) inRuns() {
	d.t.Helper()
	sameDay(d.t)
	d.books.SumLabels([]string{"run"})
	for _, call := range []ledger.Call{
		{User: "alice", Run: "run_a"}, {User: "alice", Run: "run_a/run_b"}, {User: "bob", Labels: "project=web,run=nightly"},
	} {
		call.Org, call.Key, call.Model, call.Provider, call.Endpoint = "acme", "k1", "gpt-4o", "openai", "chat.completions"
		d.spend(call, budget.Settlement{Actual: budget.Amounts{Cost: dollar}, Status: 200})
	}
}

// Usage is grouped by run and label with everything else, and filtered as the ledger is.
func TestUsageByRun(t *testing.T) {
	d := deploy(t, twoLabels)
	d.inRuns()
	for query, want := range map[string]string{
		"by=run":                            "- 1, run_a 1, run_a/run_b 1",
		"by=run,user":                       "alice run_a 1, alice run_a/run_b 1, bob 1",
		"by=user&filter=run%3Drun_a":        "alice 2",
		"by=user&filter=run%3Dnightly":      "bob 1",
		"by=user&filter=user%3Dalice":       "alice 2",
		"by=label:project,user":             "alice 2, bob web 1",
		"by=label:run":                      "- 2, nightly 1",
		"by=label:run&filter=user%3Dbob":    "nightly 1",
		"by=run&filter=cost%3E1":            "",
		"by=user&filter=run%3Drun_b&tz=UTC": "alice 1",
	} {
		got := d.expect(200, "GET", "/orgs/acme/usage?"+query, "", `{"since":null}`)
		var lines []string
		all, _ := got["lines"].([]any)
		for _, one := range all {
			l, _ := one.(map[string]any)
			names := strings.Join(strings.Fields(text(l["user"])+" "+text(l["run"])+" "+text(l["label"])), " ")
			if names == "" {
				names = "-"
			}
			lines = append(lines, names+" "+count(l["calls"]))
		}
		if got := strings.Join(lines, ", "); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	hours := d.expect(200, "GET", "/orgs/acme/usage?by=hour,run&filter=run%3Drun_a", "", "")
	if all, _ := hours["lines"].([]any); len(all) < 2 || !strings.Contains(text(all[0].(map[string]any)["hour"]), "T") {
		t.Errorf("got the lines %v, want one for each hour and run", hours["lines"])
	}
	d.refused(400, "invalid_value", "by", "GET", "/orgs/acme/usage?by=label:project,label:run", "")
	d.refused(400, "invalid_value", "by", "GET", "/orgs/acme/usage?by=label:nothing", "")
	d.refused(400, "invalid_value", "filter", "GET", "/orgs/acme/usage?filter=usr%3Dalice", "")
}

func count(v any) string {
	n, _ := v.(float64)
	return string(rune('0' + int(n)))
}

// One answer has a bounded number of amounts, whatever is asked for.
func TestSpendIsBounded(t *testing.T) {
	d := deploy(t)
	from := "from=" + time.Now().UTC().Add(-15*time.Hour).Format(time.RFC3339)
	d.refused(400, "invalid_value", "limit", "GET", "/spend?limit=10000&step=1m&"+from, "")
	d.expect(200, "GET", "/spend?limit=4000&step=1m&"+from, "", "")
	d.expect(200, "GET", "/spend?limit=10000&step=1h&"+from, "", "")
}

// Whatever reads very many entries waits its turn.
func TestScansTakeTurns(t *testing.T) {
	d := deploy(t, twoLabels)
	d.inRuns()
	server, _ := d.api.(*admin.Server)
	paths := []string{
		"/spend", "/orgs/acme/calls", "/orgs/acme/usage?by=run", "/orgs/acme/usage?filter=cost%3E0",
		"/orgs/acme/statement?month=" + time.Now().UTC().Format("2006-01"),
		"/orgs/acme/focus?month=" + time.Now().UTC().Format("2006-01"),
	}
	giveBack := server.HoldScans(t)
	for _, path := range paths {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		w := d.send("GET", path, "", func(r *http.Request) { *r = *r.WithContext(ctx) })
		cancel()
		if w.Code == http.StatusOK {
			t.Errorf("%s: got an answer while others read, want it to wait", path)
		}
	}
	d.expect(200, "GET", "/orgs/acme/usage?by=user", "", "") // sums are read by anyone
	giveBack()
	for _, path := range paths {
		if w := d.send("GET", path, ""); w.Code != http.StatusOK {
			t.Errorf("%s: got %d %.200s, want 200", path, w.Code, w.Body)
		}
	}
}
