package console_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
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
	call := ledger.Call{
		ID: wire.NewCallID(), Org: "acme", User: "alice", Key: "k1", Model: "gpt-4o", Provider: "openai",
		Endpoint: "chat.completions", Run: runs[0].Path,
	}
	h, err := r.books.Hold(r.t.Context(), budget.Terms{Call: call, Max: cost, Limits: runs[0].Limits()})
	r.must(err)
	_, err = r.books.Settle(r.t.Context(), h, budget.Settlement{Actual: cost, Status: 200, Outcome: "completed"})
	r.must(err)
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

// Runs of all orgs are a tree: a run is below the one that gave it its budget, and what cost most is first.
func TestRunsAreATree(t *testing.T) {
	r := newRig(t, acme)
	idle, wild := r.newRun("k1", `{"amount":"$5","name":"idle"}`), r.newRun("k1", `{"amount":"$5","name":"wild"}`)
	r.spendOf(idle, budget.Amounts{Cost: dollar})
	r.spendOf(wild, budget.Amounts{Cost: 3 * dollar})
	runs, err := r.books.Runs.Find(t.Context(), "acme", wild)
	r.must(err)
	_, _, err = r.books.Runs.Create(t.Context(), budget.NewRun{
		Run: budget.Run{
			Path: runs[0].Path.Below("run_inner"), Parent: runs[0].Path, Org: "acme", User: "alice", Key: "k1", Name: "inner",
			Amount: dollar,
		},
		Life: time.Hour, Most: 9,
	})
	r.must(err)
	b := r.signedIn(opsKey)
	want := []string{`class="in0">wild`, `class="in1">inner`, `class="in0">idle`}
	for _, path := range []string{"/console/runs", "/console/orgs/acme/runs"} {
		text := b.has(path, append(want, "act/end-run", "$3.00")...)
		wild, inner, idle := strings.Index(text, want[0]), strings.Index(text, want[1]), strings.Index(text, want[2])
		if wild > inner || inner > idle {
			t.Errorf("%s: got wild at %d, inner at %d and idle at %d, want them in this order", path, wild, inner, idle)
		}
	}
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
