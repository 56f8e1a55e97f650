package console_test

import (
	"encoding/json"
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
)

// newRun gives a run a budget of a key and returns its id.
func (r *rig) newRun(key, body string) string {
	r.t.Helper()
	var made struct{ ID string }
	r.must(json.Unmarshal([]byte(r.ask("POST", "/orgs/acme/keys/"+key+"/children", body)), &made))
	return made.ID
}

// spendOf charges a call of a run.
func (r *rig) spendOf(id string, cost budget.Amounts) {
	r.t.Helper()
	runs, err := r.books.Runs.Find(r.t.Context(), "acme", id)
	r.must(err)
	call := budget.Call{
		ID: wire.NewCallID(), Org: "acme", User: "alice", Key: "k1", Model: "gpt-4o", Provider: "openai",
		Endpoint: "chat.completions", Run: runs[0].Path,
	}
	h, err := r.books.Hold(r.t.Context(), budget.Terms{Call: call, Max: cost, Limits: runs[0].Limits()})
	r.must(err)
	_, err = r.books.Settle(r.t.Context(), h, budget.Settlement{Actual: cost, Status: 200, Outcome: "completed"})
	r.must(err)
}

// The list of runs has their budgets, leads to their calls, and tops them up and ends them.
func TestRunsPage(t *testing.T) {
	r := newRig(t, acme)
	id := r.newRun("k1", `{"amount":"$5","name":"nightly"}`)
	other := r.newRun("k1", `{"amount":"$1"}`)
	r.spendOf(id, budget.Amounts{Cost: 2 * dollar})
	b := r.signedIn(opsKey)
	b.has("/console/orgs/acme", `href="/console/orgs/acme/runs"`)
	b.has("/console/orgs/acme/users/alice", `href="/console/orgs/acme/runs?key=k1"`)
	text := b.has("/console/orgs/acme/runs?key=k1", "nightly", id, other, "$2.00", "$5.00", "$3.00", "open", "key=k1")
	link := regexp.MustCompile(`href="([^"]*` + id + `[^"]*)">Spend`).FindStringSubmatch(text)
	if link == nil {
		t.Fatalf("got no link to the calls of %s in %s", id, content(text))
	}
	b.has(html.UnescapeString(link[1]), "$2.000000000", "gpt-4o", "run="+id)

	if a := b.act("top-up-run", true, "org", "acme", "run", id, "add", "$2", "reason", "more"); a.status != 303 {
		t.Fatalf("top up: got %d %s, want 303", a.status, content(a.text))
	}
	b.has("/console/orgs/acme/runs", "may spend $7.00", "$7.00")
	if a := b.act("end-run", true, "org", "acme", "run", id, "reason", "enough"); a.status != 303 {
		t.Fatalf("end: got %d %s, want 303", a.status, content(a.text))
	}
	b.has("/console/orgs/acme/runs", "ended")
	if a := b.act("top-up-run", true, "org", "acme", "run", id, "add", "much"); a.status != 400 || !strings.Contains(a.text, "must be money") {
		t.Errorf("got %d %s, want 400 that explains amounts", a.status, content(a.text))
	}
	if a := b.do("GET", "/console/orgs/none/runs", nil); a.status != 404 {
		t.Errorf("runs of an unknown org: got %d, want 404", a.status)
	}
	b.has("/console/audit", "run.top_up", "more", "run.end", "enough")
}

// Spend has runs next to a label of the same name.
func TestSpendByRun(t *testing.T) {
	r := newRig(t, acme)
	id := r.newRun("k1", `{"amount":"$5"}`)
	r.spendOf(id, budget.Amounts{Cost: dollar})
	r.run("bob", "nightly", 3)
	b := r.signedIn(opsKey)
	b.has("/console/spend?by=run", ">run</a>", ">label run</a>", id, "(no run)", "$1.000000000")
	b.has("/console/spend?by=label:run", "(no label run)", "nightly")
}

// The name of a download that lacks calls says so.
func TestDownloadsSayThatTheyLackCalls(t *testing.T) {
	r := newRig(t, acme)
	for range 3 {
		r.run("alice", "nightly", 5)
	}
	b := r.signedIn(opsKey)
	named := func() string {
		return b.do("GET", "/console/calls/export?format=csv", nil).header.Get("Content-Disposition")
	}
	if got := named(); strings.Contains(got, "incomplete") {
		t.Errorf("got %s, want the name of a whole file", got)
	}
	r.must(r.rdb.Eval(t.Context(), moreEntries, []string{"lg:{acme}:ledger"}, 10_000).Err())
	if got := named(); !strings.Contains(got, "-incomplete.csv") {
		t.Errorf("got %s, want a name that ends in -incomplete.csv", got)
	}
}

// moreEntries repeats the newest entry of a ledger.
const moreEntries = `local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1][2]
for i = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], '*', unpack(last)) end
return 1`
