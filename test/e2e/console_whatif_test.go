package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestConsoleWhatIf: the console replays the ledger's calls under a different limit, without
// JavaScript and without changing anything.
func TestConsoleWhatIf(t *testing.T) {
	t.Parallel()
	s, admin, reader := consoleStack(t)
	s.replace("amount: $0.0006", "amount: $10")
	p := s.proxy()
	for range 3 {
		if a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", oneCall)); a.status != 200 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
	}
	s.settled("acme", 3)
	const page = "/console/orgs/acme/what-if"
	if _, text := newBrowser(t, p.Admin).page(page); strings.Contains(text, "slow") {
		t.Errorf("a stranger sees the limits: %.400s", text)
	}
	b := newBrowser(t, p.Admin)
	b.signIn(reader) // the read-only administrator
	if status, text := b.page("/console/orgs/acme"); !strings.Contains(text, page) {
		t.Errorf("the org's page does not lead there: status %d", status)
	}
	if status, _ := b.page("/console/orgs/nobody/what-if"); status != http.StatusNotFound {
		t.Errorf("an org that is not there: status %d", status)
	}
	resp, err := b.Get(p.Admin + page)
	status, text, header := b.read(resp, err)
	if csp := header.Get("Content-Security-Policy"); status != 200 || strings.Contains(csp, "unsafe") || !strings.Contains(text, `slow: $10.00 in any 1h per user`) {
		t.Fatalf("the form: status %d, policy %q: %s", status, csp, text)
	}
	if strings.Contains(text, `id="answer"`) {
		t.Error("there is an answer before anything was asked")
	}
	try := func(form url.Values) string {
		t.Helper()
		status, text := b.page(page + "?" + form.Encode())
		if status != 200 {
			t.Fatalf("%v: status %d: %s", form, status, text)
		}
		return text
	}
	wants := func(text string, list ...string) {
		t.Helper()
		for _, want := range list {
			if !strings.Contains(text, want) {
				t.Errorf("there is no %q in\n%s", want, text)
			}
		}
	}
	// One call holds less than $0.0006, two hold more. The others are refused, or do not wait
	// if they came before the first was settled.
	wants(try(url.Values{"limit": {"slow"}, "amount": {"$0.0006"}}),
		"slow: $0.0006 in any 1h per user, instead of $10.00 in any 1h per user", `<th scope="row">alice</th><td class="n">3</td>`,
		`<th scope="row">what if</th><td class="n">1</td><td class="n">0</td>`, "$0.00156 → $0.00052", "3 calls from")
	wants(try(url.Values{"limit": {"slow"}, "amount": {"$0.0006"}, "mode": {"shadow"}}), "In shadow mode", `<th scope="row">alice</th><td class="n">2</td>`)
	wants(try(url.Values{"limit": {"+user"}, "amount": {"$0.00001"}, "window": {"1h"}, "days": {"7"}}), "new limit: $0.00001 in any 1h per user", `0 → <strong>3</strong>`)
	wants(try(url.Values{"limit": {"slow"}, "amount": {"much"}}), `role="alert"`, "Invalid amount:", `value="much"`)
	// Nothing has changed: another call succeeds.
	if a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", oneCall)); a.status != 200 {
		t.Errorf("afterwards: status %d: %s", a.status, a.body)
	}
	b = newBrowser(t, p.Admin)
	b.signIn(admin)
	if _, text := b.page("/console/audit?org=acme"); !strings.Contains(text, "No changes recorded") {
		t.Errorf("the audit has %s", text)
	}
}
