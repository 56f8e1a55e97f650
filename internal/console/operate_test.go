package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// The first page lists what the checks find with links, buttons and fixes, and nothing that is fine.
func TestOverviewSaysWhatIsWrong(t *testing.T) {
	r := newRig(t, acme)
	r.findings = []diagnose.Finding{
		{Level: diagnose.Error, What: "pool main is paused", Fix: "Resume it.", Pool: "main"},
		{Level: diagnose.Error, What: "webhook target x is disabled", Fix: "Fix it.", Org: "acme", Target: "t1"},
		{Level: diagnose.Warning, What: "nothing bounds <acme>", Fix: "Set a limit.", Org: "acme"},
		{Level: diagnose.OK, What: "redis answers"},
	}
	b := r.signedIn(opsKey)
	redistest.Eventually(t, "the checks have run", func() bool {
		return strings.Contains(b.page("/console/"), "Needs attention <small>3</small>")
	})
	text := b.has("/console/", `<strong><a href="/console/queue#pool-main">Pool main is paused</a></strong> <span>Resume it.</span>`,
		"act/resume-pool", "<strong>Webhook target x is disabled</strong>", "act/enable-webhook",
		`<strong><a href="/console/orgs/acme">Nothing bounds &lt;acme&gt;</a></strong>`)
	if strings.Contains(text, "edis answers") {
		t.Errorf("got what is right among the problems: %s", content(text))
	}
	newRig(t, acme).signedIn(opsKey).has("/console/", `id="incidents"`)
}

// entry settles a call of alice's from an IP address and returns its id.
func (r *rig) entry(cost pricing.Nano, limits ...budget.Limit) string {
	r.t.Helper()
	call := ledger.Call{
		ID: wire.NewCallID(), Org: "acme", User: "alice", Key: "k1", IP: "192.0.2.7", Model: "gpt-4o", Provider: "openai",
		Endpoint: "chat.completions",
	}
	h, err := r.books.Hold(r.t.Context(), budget.Terms{Limits: limits, Call: call, Max: budget.Amounts{Cost: cost, Tokens: 500}})
	r.must(err)
	_, err = r.books.Settle(r.t.Context(), h, budget.Settlement{
		Actual: budget.Amounts{Cost: cost}, Usage: pricing.Usage{Input: 1200, Output: 34}, Outcome: "completed", Status: 200,
		Split:  pricing.Split{Input: cost / 4, CachedInput: cost / 4, Output: cost - cost/2},
		Waited: 1500 * time.Millisecond, Took: 2500 * time.Millisecond,
	})
	r.must(err)
	return call.ID
}

// A call has a page with tokens, latency, status and cost, and what its windows contained at
// the time.
func TestCallPage(t *testing.T) {
	r := newRig(t, strings.Replace(acme, "limits:\n", "limits:\n      - {name: days, amount: $100, window: 3d}\n", 1))
	r.entry(3 * dollar)
	id := r.entry(2 * dollar)
	r.entry(dollar) // after the call
	b := r.signedIn(opsKey)
	text := b.has("/console/calls/acme/"+id, "HTTP 200", "1,200 in", "34 out", "waited 1.5s", "took 2.5s", "$2.00", "192.0.2.7", "daily")
	if parts := "input $0.5000, cached input $0.5000, output $1.00"; !strings.Contains(text, parts) {
		t.Errorf("the parts of the cost do not add up to it, want %s in %s", parts, text)
	}
	limit := func(name string, want ...string) {
		t.Helper()
		row := text[strings.Index(text, `<th scope="row">`+name):]
		row = row[:strings.Index(row, "</tr>")]
		for _, one := range want {
			if !strings.Contains(row, one) {
				t.Errorf("got %s, want %s", row, one)
			}
		}
	}
	limit("daily", "$3.00", "30 %")
	limit("month", "$3.00", "3 %") // a calendar period
	limit("days", "$3.00", "3 %")
	now := time.Now().UTC() // yesterday was like today: $6 more in the three-day window
	sums := func(t time.Time) string { return "lg:{acme}:sums:" + t.Format("20060102") }
	r.must(r.rdb.Copy(t.Context(), sums(now), sums(now.AddDate(0, 0, -1)), 0, true).Err())
	text = b.has("/console/calls/acme/" + id)
	limit("days", "$9.00", "9 %")
	limit("daily", "$3.00", "30 %")
	b.has("/console/orgs/acme/users/alice", "/console/calls/acme/"+id)
	for _, path := range []string{"/console/calls/acme/" + wire.NewCallID(), "/console/calls/nobody/" + id, "/console/calls/acme/x"} {
		if a := b.do("GET", path, nil); a.status != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404", path, a.status)
		}
	}
}

// One field finds orgs and users by part of their id, and calls and jobs by their complete id.
func TestSearch(t *testing.T) {
	r := newRig(t, acme)
	call, j := r.entry(dollar), r.put("acme", "alice", "gpt-4o")
	b := r.signedIn(opsKey)
	for query, want := range map[string]string{call: "/console/calls/acme/" + call, j.ID: "/console/jobs/acme/" + j.ID} {
		a := b.do("GET", "/console/search?q="+query, nil)
		if a.status != http.StatusSeeOther || a.header.Get("Location") != want {
			t.Errorf("%s: got %d to %s, want %s", query, a.status, a.header.Get("Location"), want)
		}
	}
	b.has("/console/search?q=LIC", "/console/orgs/acme/users/alice")
	b.has("/console/search?q=acme", `href="/console/orgs/acme"`)
	b.has("/console/search?q=batch_nothing", "Nothing found")
	b.has("/console/search?q=%3Cscript%3E", "Nothing found", "&lt;script&gt;")
}

// Limits that count users, keys or addresses are on the org's page with the subject closest to
// the limit, and can be reset for one subject.
func TestLimitsOfEachOnTheOrgPage(t *testing.T) {
	r := newRig(t, strings.Replace(acme, "{name: rate,", "{name: door, subject: ip, amount: $8, window: 1h}\n      - {name: rate,", 1))
	door := budget.Limit{
		ID: "door", Subject: budget.IP, Metric: budget.Cost,
		Shape: budget.Shape{Kind: budget.Window, Amount: int64(8 * dollar), Window: time.Hour},
	}
	r.entry(2*dollar, door)
	r.spend("acme", "alice", dollar)
	b := r.signedIn(opsKey)
	b.has("/console/orgs/acme?ip=192.0.2.9", "no recent usage")
	text := b.page("/console/orgs/acme")
	if got := row(text, "each-door-"); !strings.Contains(got, "192.0.2.7 $2.00 of $8.00") {
		t.Errorf("got the limit per address as %q", got)
	}
	if got := row(text, "each-daily-"); !strings.Contains(got, "alice $1.00 of $10.00") {
		t.Errorf("got the limit per user as %q", got)
	}
	b.act("reset-limit", true, "org", "acme", "limit", "door", "ip", "192.0.2.7", "reason", "a test")
	if got := row(b.page("/console/orgs/acme"), "each-door-"); !strings.Contains(got, "no recent usage") {
		t.Errorf("after the reset: got %q", got)
	}
	b.has("/console/audit", "limit.reset", "a test")
}

// A replayed dead letter and its replacement link to each other.
func TestReplayIsLinkedBothWays(t *testing.T) {
	r := newRig(t, acme)
	ctx := t.Context()
	j := r.put("acme", "alice", "gpt-4o")
	r.must(r.rdb.HSet(ctx, "lg:{main}:job:"+j.ID, "state", "failed", "replay", "job_next").Err())
	b := r.signedIn(opsKey)
	b.has("/console/jobs/acme/"+j.ID, "Replayed as", "/console/jobs/acme/job_next")
	r.must(r.rdb.HSet(ctx, "lg:{main}:job:"+j.ID, "origin", "job_before").Err())
	b.has("/console/jobs/acme/"+j.ID, "Replay of", "/console/jobs/acme/job_before")
}
