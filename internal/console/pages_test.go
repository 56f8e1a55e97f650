package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// row returns the text of the table row with this id.
func row(page, id string) string {
	_, rest, _ := strings.Cut(page, `<tr id="`+id+`"`)
	text, _, _ := strings.Cut(rest, "</tr>")
	_, text, _ = strings.Cut(text, ">")
	return strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(text, " ")), " ")
}

// Spending appears in dollars on every page that it concerns.
func TestSpendingOnPages(t *testing.T) {
	r := newRig(t, acme)
	r.spend("acme", "alice", 5*dollar)
	r.spend("acme", "alice", dollar/4)
	r.spend("acme", "bob", dollar)
	b := r.signedIn(opsKey)
	b.has("/console/", "$6.25", "acme/alice", "$5.25", "acme/bob")
	org := b.has("/console/orgs/acme", "$6.25", "3 calls", "gpt-4o")
	got := row(org, "limit-org-month")
	if !strings.Contains(got, "$6.25") || !strings.Contains(got, "$93.75") {
		t.Errorf("got the limit of the month %q, want $6.25 used and $93.75 left", got)
	}
	got = row(org, "user-alice")
	if !strings.HasPrefix(got, "alice 1 $5.25 $5.25 0 daily $5.25 of $10.00") {
		t.Errorf("got alice's row %q", got)
	}
	if strings.Index(org, `id="user-alice"`) > strings.Index(org, `id="user-bob"`) {
		t.Error("got bob before alice, want who spent most first")
	}
	user := b.has("/console/orgs/acme/users/alice", "$5.25", "2 calls", "gpt-4o", "$0.2500")
	got = row(user, "limit-user-daily")
	if !strings.Contains(got, "$5.25") || !strings.Contains(got, "$4.75") {
		t.Errorf("got alice's daily limit %q, want $5.25 used and $4.75 left", got)
	}
}

// Users are found by part of their id, case-insensitively, fifty per page.
func TestFindingUsers(t *testing.T) {
	var users []string
	for i := range 60 {
		users = append(users, fmt.Sprintf("{id: user-%02d}", i))
	}
	b := newRig(t, "[{id: big, users: ["+strings.Join(users, ", ")+"]}]").signedIn(opsKey)
	for path, want := range map[string]int{
		"/console/orgs/big": 50, "/console/orgs/big?page=1": 10, "/console/orgs/big?page=2": 0,
		"/console/orgs/big?q=USER-0": 10,
		"/console/orgs/big?q=-59":    1, "/console/orgs/big?q=nobody": 0, "/console/orgs/big?page=-1": 50,
		"/console/orgs/big?page=x":           50,
		"/console/orgs/big?page=99999999999": 50,
	} {
		if got := strings.Count(b.page(path), `<tr id="user-`); got != want {
			t.Errorf("%s: got %d users, want %d", path, got, want)
		}
	}
	first := b.has("/console/orgs/big?q=user", `rel="next"`, "q=user")
	if strings.Contains(first, `rel="prev"`) {
		t.Error("the first page: got a link to one before")
	}
	b.has("/console/orgs/big?q=user&page=1", `rel="prev"`)
	b.hasNot("/console/orgs/big?q=user&page=1", `rel="next"`)
}

// Names and queries are rendered as text, whatever they contain.
func TestHostileNames(t *testing.T) {
	const hostile = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>`
	r := newRig(t, acme)
	name, err := json.Marshal(hostile)
	r.must(err)
	record := tenants.Key{User: "alice", Fields: settings.Fields[settings.Key]{"name": name}}
	r.record(tenants.Ref{Kind: tenants.KindOrg, Org: "evil", ID: "evil"},
		tenants.Org{Fields: settings.Fields[settings.Org]{"name": name}})
	r.record(tenants.Ref{Kind: tenants.KindUser, Org: "evil", ID: "alice"},
		tenants.User{Fields: settings.Fields[settings.User]{"name": name}})
	record.Hash = "sha256:" + strings.Repeat("0", 64)
	r.record(tenants.Ref{Kind: tenants.KindKey, Org: "evil", ID: "e1"}, record)
	r.hear()
	j := r.put("evil", "alice", hostile)
	b := r.signedIn(opsKey)
	query := "%3Cscript%3Ealert(1)%3C/script%3E%22%27%3E%3Cimg%20src=x%20onerror=alert(2)%3E"
	for _, path := range []string{
		"/console/", "/console/orgs/evil", "/console/orgs/evil/users/alice", "/console/queue", "/console/jobs?org=evil",
		"/console/jobs/evil/" + j.ID,
		"/console/orgs/acme?q=" + query, "/console/jobs?org=acme&user=" + query + "&model=" + query + "&status=" + query,
		"/console/batches?org=acme&user=" + query, "/console/audit?org=" + query + "&actor=" + query,
		"/console/orgs/acme/what-if?limit=" + query + "&amount=" + query + "&window=" + query + "&mode=" + query,
	} {
		text := b.page(path)
		if strings.Contains(text, "<script>alert") || strings.Contains(text, "<img src=x") {
			t.Errorf("%s: got markup of the name in %s", path, content(text))
		}
	}
	b.has("/console/orgs/evil", "&lt;script&gt;alert(1)&lt;/script&gt;")
	b.has("/console/orgs/evil/users/alice", "e1", "&lt;script&gt;alert(1)&lt;/script&gt;")
	b.has("/console/jobs?org=evil", "&lt;script&gt;alert(1)&lt;/script&gt;")
}

func TestStatusOfKeys(t *testing.T) {
	r := newRig(t, acme)
	at := json.RawMessage(strconv.Quote(time.Now().Add(-time.Hour).Format(time.RFC3339)))
	record := tenants.Key{User: "alice", Hash: "sha256:" + strings.Repeat("1", 64), Last4: "wxyz"}
	record.Fields = settings.Fields[settings.Key]{"expires": at}
	r.record(tenants.Ref{Kind: tenants.KindKey, Org: "acme", ID: "late"}, record)
	record.Hash, record.Fields = "sha256:"+strings.Repeat("2", 64), settings.Fields[settings.Key]{"disabled": json.RawMessage("true")}
	r.record(tenants.Ref{Kind: tenants.KindKey, Org: "acme", ID: "shut"}, record)
	b := r.signedIn(opsKey)
	r.hear()
	r.must(r.rdb.HSet(t.Context(), "lg:{identity:}:used", "acme k1", time.Now().Add(-90*time.Second).Unix()).Err())
	b.act("disable-key", true, "org", "acme", "key", "k1")
	text := b.has("/console/orgs/acme/users/alice", "late", "expired", "shut", "…wxyz", "1m 3", "disabled")
	if strings.Count(text, "/console/act/enable-key") != 2 || strings.Count(text, "/console/act/rotate-key") != 1 {
		t.Errorf("got %d buttons to enable and %d to rotate, want 2 and 1", strings.Count(text, "/console/act/enable-key"),
			strings.Count(text, "/console/act/rotate-key"))
	}
}

func TestQueuePage(t *testing.T) {
	r := newRig(t, acme)
	for range 3 {
		r.put("acme", "alice", "gpt-4o")
	}
	r.put("acme", "bob", "gpt-4o")
	b := r.signedIn(opsKey)
	b.has("/console/queue", "longest wait first, as of ", "4 async", "/console/orgs/acme/users/bob", "of 500", "of 100,000", "open")
	r.must(r.queue.Quota().Block(t.Context(), "main", time.Hour))
	b.has("/console/queue", "closed")
}

// Jobs are filtered by user, model and status, fifty per page, and never shown with their
// prompts.
func TestJobsPage(t *testing.T) {
	r := newRig(t, acme)
	for range 51 {
		r.put("acme", "alice", "gpt-4o")
	}
	j := r.put("acme", "bob", "gpt-5")
	_, err := r.queue.Cancel(t.Context(), "acme", j.ID)
	r.must(err)
	b := r.signedIn(opsKey)
	for query, want := range map[string]int{
		"": 50, "?org=acme&user=alice": 50, "?org=acme&user=bob": 1, "?org=acme&model=gpt-5": 1,
		"?org=acme&status=cancelled": 1,
		"?org=acme&status=running":   0, "?org=acme&status=nonsense": 50, "?org=acme&user=nobody": 0, "?org=other": 0,
	} {
		if got := strings.Count(content(b.page("/console/jobs"+query)), `<th scope="row">`); got != want {
			t.Errorf("%q: got %d jobs, want %d", query, got, want)
		}
	}
	next := regexp.MustCompile(`rel="next" href="([^"]+)"`).FindStringSubmatch(b.page("/console/jobs?org=acme&user=alice"))
	if next == nil || strings.Count(b.page(strings.ReplaceAll(next[1], "&amp;", "&")), `<th scope="row">`) != 1 {
		t.Errorf("got the next page %v, want one with the job that is left", next)
	}
}

func TestJobPage(t *testing.T) {
	r := newRig(t, acme)
	r.put("acme", "alice", "gpt-4o")
	j := r.put("acme", "alice", "gpt-4o")
	b := r.signedIn(opsKey)
	path := "/console/jobs/acme/" + j.ID
	text := b.has(path, "queued", "1 ahead", "at most $0.000001", "/console/act/cancel-job", "acme/alice", "key k1")
	if strings.Contains(text, "secret-of-the-request") || strings.Contains(text, "/console/act/replay-job") {
		t.Errorf("got the request, or a replay of what has not failed: %s", content(text))
	}
	_, err := r.queue.Cancel(t.Context(), "acme", j.ID)
	r.must(err)
	b.has(path, "cancelled", "Ended")
	b.hasNot(path, "/console/act/cancel-job")
	a := b.do("GET", "/console/jobs/globex/"+j.ID, nil)
	if a.status != http.StatusNotFound {
		t.Errorf("as another org's: got %d, want 404", a.status)
	}
}

// The audit page shows who changed what and why, and filters by org and actor.
func TestAuditPage(t *testing.T) {
	r := newRig(t, acme)
	b := r.signedIn(opsKey)
	b.act("disable-key", true, "org", "acme", "key", "k1", "reason", "lost <laptop>")
	b.has("/console/audit", "ops", "key.update", "acme", "k1", "lost &lt;laptop&gt;")
	b.has("/console/audit?org=acme&actor=ops", "key.update")
	b.has("/console/audit?org=globex", "No changes recorded")
	b.has("/console/audit?actor=nobody", "No changes recorded")
	for i := range 55 {
		r.record(tenants.Ref{Kind: tenants.KindUser, Org: "acme", ID: fmt.Sprintf("u%d", i)}, tenants.User{})
	}
	first := b.has("/console/audit", `rel="next"`)
	if got := strings.Count(first, "<code>"); got != 50 {
		t.Errorf("got %d entries on a page, want 50", got)
	}
	next := regexp.MustCompile(`rel="next" href="([^"]+)"`).FindStringSubmatch(first)
	b.has(strings.ReplaceAll(next[1], "&amp;", "&"), "key.update")
	b.has("/console/audit?after=nonsense", "after must be")
}

// Without Redis a page says so, and the session is kept.
func TestStoreIsUnavailable(t *testing.T) {
	r := newRig(t, acme)
	b := r.signedIn(opsKey)
	b.page("/console/jobs")
	r.must(r.rdb.Do(t.Context(), "acl", "setuser", "default", "-evalsha", "-eval", "-zrevrange", "-zrange").Err())
	a := b.do("GET", "/console/jobs?org=acme", nil)
	r.must(r.rdb.Do(t.Context(), "acl", "setuser", "default", "+@all").Err())
	if a.status != http.StatusServiceUnavailable || !strings.Contains(a.text, "Redis did not answer") {
		t.Errorf("got %d %s, want 503 and why", a.status, content(a.text))
	}
	b.page("/console/jobs")
}
