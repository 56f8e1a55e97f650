package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// The queue page lists dead letters with their errors and a way to replay them.
func TestDeadLettersOnPages(t *testing.T) {
	s := newScene(t)
	b := s.signedIn(opsKey)
	b.has("/console/queue", s.dead.ID, "Dead letters", `name="job" value="`+s.dead.ID+`"`)
	path := "/console/jobs/acme/" + s.dead.ID
	b.has(path, "failed", "the provider is down", "/console/act/replay-job", "status 502")
	b.hasNot(path, "/console/act/cancel-job")
	b.act("replay-job", true, "job", s.dead.ID)
	b.hasNot("/console/queue", "Dead letters")
	b.has(path, "Replayed as")
	b.hasNot(path, "/console/act/replay-job")
}

func TestBatchesPages(t *testing.T) {
	s := newScene(t)
	b := s.signedIn(opsKey)
	b.has("/console/batches", s.batch.ID, "/console/batches/acme/alice/"+s.batch.ID) // the first org's first user
	b.hasNot("/console/batches?org=acme&user=bob", s.batch.ID)
	b.hasNot("/console/batches?org=other", s.batch.ID)
	path := "/console/batches/acme/alice/" + s.batch.ID
	b.has(path, "/chat/completions", "0 of 0 done", "/console/act/cancel-batch")
	for _, other := range []string{"/console/batches/acme/bob/", "/console/batches/globex/alice/"} {
		a := b.do("GET", other+s.batch.ID, nil)
		if a.status != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404: it is alice's", other, a.status)
		}
	}
	s.must(s.rdb.HSet(t.Context(), "lg:{"+s.batch.ID+"}:batch", "status", "completed").Err())
	b.hasNot(path, "/console/act/cancel-batch")
}

// An override is shown where it applies, until it expires.
func TestOverridesOnPages(t *testing.T) {
	s := newScene(t)
	b := s.signedIn(opsKey)
	b.has("/console/orgs/acme", "Temporary changes", "$1.00", "$101.00", `name="override" value="`+s.override+`"`)
	b.act("end-override", true, "org", "acme", "override", s.override)
	b.hasNot("/console/orgs/acme", "Temporary changes", "$101.00")
}

// A what-if uses the ledger and changes nothing; an invalid form is explained.
func TestWhatIfPage(t *testing.T) {
	s := newScene(t)
	s.spend("acme", "alice", 4*dollar)
	s.spend("acme", "alice", 4*dollar)
	b := s.signedIn(opsKey)
	ask := func(limit, amount, window, mode string) string {
		return "/console/orgs/acme/what-if?" + url.Values{
			"limit": {limit}, "amount": {amount}, "window": {window},
			"mode": {mode}, "days": {"1"},
		}.Encode()
	}
	before := s.state()
	for path, want := range map[string]string{
		ask("nothing", "$1", "", ""): "no limit", ask("month", "1", "", ""): "in dollars", ask("rate", "$1", "",
			""): "a plain number",
		ask("month", "$x", "", ""): "Invalid amount:", ask("+org", "$1", "", ""): "needs an amount and a window", ask("month", "",
			"1h", ""): "has no window; leave it empty",
		ask("month", "", "", "maybe"): "Unknown mode",
	} {
		text := b.has(path, want, `role="alert"`)
		if strings.Contains(text, `id="answer"`) {
			t.Errorf("%s: got an answer to a wrong form", path)
		}
	}
	b.has(ask("daily", "$5", "", ""), `id="answer"`, "unchanged", "what if", "alice", "$5.00 in any 1d",
		"instead of $10.00")
	b.has(ask("+user", "$5", "1h", "shadow"), `id="answer"`, "new limit", "in shadow mode")
	now := s.state()
	if now != before {
		t.Errorf("got %s, want %s: a what-if changes nothing", now, before)
	}
	b.hasNot("/console/orgs/acme/what-if", `id="answer"`, `role="alert"`)
}

// Without calls in the ledger there is nothing to replay.
func TestWhatIfWithoutCalls(t *testing.T) {
	b := newRig(t, acme).signedIn(opsKey)
	b.has("/console/orgs/acme/what-if?limit=month&amount=$1", "The ledger has no call", `role="alert"`)
}
