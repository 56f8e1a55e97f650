package console_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

// globex is an org next to acme, whose user may spend more in an hour than in any before.
const globex = `
  - {id: globex, limits: [{name: day, amount: $1000, calendar: day}], users: [{id: hank, keys: [{id: k9, hash: "sha256:0000000000000000000000000000000000000000000000000000000000000009"}]}]}
`

// incident returns the text of the incident with this title on the overview, which it waits for.
func (b *browser) incident(title string) string {
	b.t.Helper()
	found := ""
	redistest.Eventually(b.t, "the overview has "+title, func() bool {
		page := b.page("/console/")
		before, rest, ok := strings.Cut(page, ">"+title+"<")
		found, _, _ = strings.Cut(rest, "</li>")
		found = before[strings.LastIndex(before, "<li")+1:] + found
		return ok
	})
	return found
}

// Jobs that wait for longer than they should are an incident of their user, also if nothing else is wrong.
func TestOldJobsAreIncidents(t *testing.T) {
	r := newRig(t, acme)
	r.put("acme", "bob", "gpt-4o")
	b := r.signedIn(opsKey)
	r.later(16 * time.Minute)
	b.has("/console/queue", "16m")
	got := b.incident("bob (acme)")
	for _, want := range []string{"1 job waiting, the oldest for 16m", "jobs are old in pool main", "act/disable-user", "status=queued"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %q", got, want)
		}
	}
}

// A limit near its amount is an incident of the user, or else of the org, with the money first. The overview shows
// twenty incidents and counts the others.
func TestIncidentsAreSortedAndBounded(t *testing.T) {
	r := newRig(t, acme+globex)
	for i := range 25 {
		r.findings = append(r.findings, diagnose.Finding{Level: diagnose.Warning, What: fmt.Sprintf("thing %02d is odd", i)})
	}
	r.spend("acme", "bob", 8*dollar)
	r.spend("acme", "alice", 9*dollar)
	r.spend("globex", "hank", dollar/2)
	b := r.signedIn(opsKey)
	got := b.incident("alice (acme)")
	for _, want := range []string{
		"$9.00 in 24 hours, 51 % of all", "limit daily at 90 %: $9.00 of $10.00, resets in", "act/raise-limit",
		"what-if?limit=daily", "nothing in the day before it",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %q", got, want)
		}
	}
	text := b.has("/console/", "<h2>Needs attention <small>20 and 7 more</small></h2>")
	alice, bob := strings.Index(text, "alice (acme)"), strings.Index(text, "bob (acme)")
	if odd := strings.Index(text, "Thing 00 is odd"); alice > bob || bob > odd {
		t.Errorf("got alice at %d, bob at %d, a check at %d; want those who spent more first, and checks last", alice, bob, odd)
	}
	if strings.Contains(text, "hank (globex)") {
		t.Errorf("got an incident of a user who is far from every limit: %s", content(text))
	}
}

// refuse records calls of users of acme that a cause refused, and returns the id of the last.
func (r *rig) refuse(cause budget.Cause, run string, users ...string) (id string) {
	r.t.Helper()
	for _, user := range users {
		id = wire.NewCallID()
		who := ledger.Call{ID: id, Org: "acme", User: user, Run: ledger.RunPath(run)}
		r.books.Refusals.Add(budget.RefusedCall{Call: who, Cause: cause, Status: 429})
	}
	r.must(r.books.Refusals.Write(r.t.Context()))
	return id
}

// The search explains an id that has no page, such as that of a refused call.
func TestSearchExplainsARefusedCall(t *testing.T) {
	r := newRig(t, acme+"  - {id: globex, limits: [{name: month, amount: $100, calendar: month}]}\n")
	id := r.refuse("limit:daily", "", "bob")
	b := r.signedIn(opsKey)
	b.has("/console/search?q="+id, "<h2>call <code>"+id, ">acme/bob</a>", "<p>Refused by the limit daily")
	b.has("/console/search?q=job_none", "Nothing found.")
	b.has("/console/search?q=daily", "limit <code>daily</code>")
	b.has("/console/search?q=month", "llmguard why limit:month --org acme", "llmguard why limit:month --org globex")
}

// What refuses the calls of all is one incident, which names the users. What depends on the user is the user's.
func TestRefusalsAreIncidents(t *testing.T) {
	r := newRig(t, acme)
	r.refuse("provider:openai", "", "bob", "alice", "bob", "carol", "dave", "erin")
	r.refuse("run:run", "run_a", "alice")
	r.refuse("run:run-2", "run_a/run_b/run_c", "alice")
	b := r.signedIn(opsKey)
	of := map[string][]string{
		"The provider openai": {
			"6 calls refused, of bob (acme): 2, alice (acme): 1, carol (acme): 1, 2 more users", `class="grave"`,
		},
		"alice (acme)": {
			"UTC, 2 calls refused by the budget of a run<", "last by run_b", `act/top-up-run`, `name="run" value="run_b"`,
			"orgs/acme/runs",
		},
	}
	for title, want := range of {
		got := b.incident(title)
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("%s: got %s, want %q", title, got, text)
			}
		}
	}
	b.hasNot("/console/", "bob (acme)</a>", "refused by the provider openai")
}

// Many incidents of one kind do not hide those of the other kinds.
func TestIncidentsOfOneKindLeaveRoom(t *testing.T) {
	r := newRig(t, acme)
	r.findings = []diagnose.Finding{{Level: diagnose.Error, What: "a thing is odd"}}
	for i := range 25 {
		r.refuse("limit:daily", "", fmt.Sprintf("user%02d", i))
	}
	b := r.signedIn(opsKey)
	b.incident("A thing is odd")
	text := b.has("/console/", "<h2>Needs attention <small>20 and 6 more</small></h2>")
	if odd, after := strings.Index(text, "A thing is odd"), strings.Index(text, "user06 (acme)"); odd > after {
		t.Errorf("got the finding at %d, the seventh user at %d; want it before", odd, after)
	}
}

// Lists begin with all orgs, the most expensive first.
func TestListsBeginWithAllOrgs(t *testing.T) {
	r := newRig(t, acme+globex)
	r.spend("acme", "alice", dollar)
	r.spend("globex", "hank", 3*dollar)
	cheap, dear := r.put("acme", "alice", "gpt-4o"), r.put("globex", "hank", "gpt-4o")
	b := r.signedIn(opsKey)
	first := func(path string, names ...string) {
		t.Helper()
		text := content(b.page(path))
		_, text, _ = strings.Cut(text, "<tbody")
		last := -1
		for _, name := range names {
			at := strings.Index(text, name)
			if at <= last {
				t.Errorf("%s: got %s at %d after %d, want %v in this order", path, name, at, last, names)
			}
			last = at
		}
	}
	first("/console/calls", "/console/orgs/globex/users/hank", "/console/orgs/acme/users/alice")
	first("/console/calls?sort=newest", "/console/orgs/globex/users/hank", "/console/orgs/acme/users/alice")
	b.has("/console/spend", "/console/calls/globex/", "/console/calls/acme/")
	b.has("/console/jobs", cheap.ID, dear.ID)
	b.has("/console/jobs?status=queued", cheap.ID, dear.ID)
	if got := strings.Count(b.page("/console/jobs"), cheap.ID+"</code>"); got != 1 {
		t.Errorf("got the job %d times, want once", got)
	}
	if a := b.do("GET", "/console/calls/export?format=csv", nil); a.status != 400 {
		t.Errorf("a download of all orgs: got %d, want 400", a.status)
	}
}
