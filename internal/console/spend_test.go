package console_test

import (
	"encoding/csv"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// run charges a call of a run.
func (r *rig) run(user, run string, cost pricing.Nano) {
	r.t.Helper()
	call := ledger.Call{
		ID: wire.NewCallID(), Org: "acme", User: user, Key: "k1", Model: "gpt-4o", Provider: "openai",
		Endpoint: "chat.completions", Labels: ledger.Labels("run=" + run),
	}
	h, err := r.books.Hold(r.t.Context(), budget.Terms{Call: call, Max: budget.Amounts{Cost: cost}})
	r.must(err)
	_, err = r.books.Settle(r.t.Context(), h, budget.Settlement{
		Actual: budget.Amounts{Cost: cost}, Status: 200, Outcome: "completed", Usage: pricing.Usage{Input: 10},
	})
	r.must(err)
}

var links = regexp.MustCompile(`<th scope="row"><i class="s0" aria-hidden="true"></i><a href="([^"]+)">([^<]+)</a>`)

// The run that burned the money is the first line by run; its link shows its calls, and the exact
// amounts add up to the ledger.
func TestSpendFindsTheRun(t *testing.T) {
	r := newRig(t, acme)
	for i := range 20 {
		r.run([]string{"alice", "bob"}[i%2], fmt.Sprintf("nightly-%d", i), 1_000_003)
	}
	for range 3 {
		r.run("alice", "wild@1", 3*dollar+7)
	}
	b := r.signedIn(opsKey)
	text := b.has("/console/spend?by=label:run", "$9.020000081", "1 others", `<rect class="s0"`, "$9.000000021", "new")
	first := links.FindStringSubmatch(text)
	if first == nil || first[2] != "wild@1" {
		t.Fatalf("got the first line %v, want wild@1", first)
	}
	text = b.has(html.UnescapeString(first[1]), "run=wild@1", "$9.000000021", "alice", "gpt-4o")
	if got := strings.Count(text, "<td><a href=\"/console/calls/acme/"); got != 3 {
		t.Errorf("got %d calls of the run, want 3", got)
	}
}

// Downloads have exact amounts, and no cell that a spreadsheet would run.
func TestSpendDownloads(t *testing.T) {
	r := newRig(t, acme)
	r.run("alice", "=1+1", 3*dollar+7)
	r.run("bob", "nightly", 5)
	b := r.signedIn(opsKey)
	a := b.do("GET", "/console/spend/export?by=label:run&format=csv", nil)
	rows, err := csv.NewReader(strings.NewReader(a.text)).ReadAll()
	if err != nil || len(rows) != 3 || rows[1][2] != "'=1+1" || rows[1][6] != "3.000000007" || rows[2][6] != "0.000000005" {
		t.Errorf("got %v, %v, want both runs with their exact cost", rows, err)
	}
	a = b.do("GET", "/console/calls/export?q=bob&format=csv", nil)
	rows, err = csv.NewReader(strings.NewReader(a.text)).ReadAll()
	if err != nil || len(rows) != 2 || rows[1][12] != "0.000000005" {
		t.Errorf("got %v, %v, want the call of bob", rows, err)
	}
	a = b.do("GET", "/console/spend/export?by=user&format=json", nil)
	if !strings.Contains(a.text, `"cost_nano_usd":3000000007`) {
		t.Errorf("got %.300s, want the cost in nano-USD", a.text)
	}
}

// Calls are searched with the language of the API; a mistake is explained.
func TestCallsPage(t *testing.T) {
	r := newRig(t, acme)
	for range 51 {
		r.run("alice", "nightly", 5)
	}
	r.run("bob", "wild", dollar)
	b := r.signedIn(opsKey)
	for query, want := range map[string]int{
		"": 50, "?q=user=bob": 1, "?q=wild": 1, "?q=cost>0.50": 1, "?q=status>=400": 0, "?q=run=night*+cost<0.5": 50,
		"?q=user=bob+user=alice": 0, "?range=1h&q=bob&sort=cost": 1,
	} {
		query = strings.NewReplacer(">", "%3E", "<", "%3C").Replace(query)
		if got := strings.Count(content(b.page("/console/calls"+query)), "<td><a href=\"/console/calls/acme/"); got != want {
			t.Errorf("%q: got %d calls, want %d", query, got, want)
		}
	}
	next := regexp.MustCompile(`href="([^"]+)" rel="next"`).FindStringSubmatch(b.page("/console/calls?sort=newest"))
	if next == nil || strings.Count(b.page(html.UnescapeString(next[1])), "<td><a href=\"/console/calls/acme/") != 2 {
		t.Errorf("got the next page %v, want one with the two calls that are left", next)
	}
	b.has("/console/calls?q=usr%3Dbob", "neither a label nor one of")
	b.has("/console/spend?q=usr%3Dbob", "neither a label nor one of")
	b.has("/console/spend?q=user%3Dnobody", "Nothing was spent in this period by calls that meet the conditions")
}
