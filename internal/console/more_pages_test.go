package console_test

import (
	"net/url"
	"strings"
	"testing"
)

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
