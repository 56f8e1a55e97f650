package admin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// TestDeletedOrgsStayInTheBooks: a call that is open while its org is deleted is in all reports, under the org's id
// and in the sums of all orgs. Other resources of the org, and orgs without a ledger, are not found.
func TestDeletedOrgsStayInTheBooks(t *testing.T) {
	d := deploy(t)
	sameDay(t)
	d.expect(201, "POST", "/orgs", `{"id":"fleeting"}`, "")
	most := budget.Amounts{Cost: 3 * dollar}
	h, err := d.books.Hold(t.Context(), budget.Terms{Max: most, Expected: most, Call: ledger.Call{
		ID: wire.NewCallID(), Org: "fleeting", User: "u", Key: "k", Model: "gpt-4o", Provider: "openai", Endpoint: "chat.completions",
	}})
	if err != nil {
		t.Fatal(err)
	}
	d.expect(204, "DELETE", "/orgs/fleeting", "", "")
	if _, err := d.books.Settle(t.Context(), h, budget.Settlement{Actual: most, Usage: pricing.Usage{Input: 100}}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/orgs/fleeting/usage?by=user", "/spend?by=org", "/spend?by=org&org=fleeting"} {
		got := d.expect(200, "GET", path, "", "")
		total, _ := got["total"].(map[string]any)
		d.has("the total of "+path, total, `{"calls":1,"cost_nano_usd":3e9}`)
	}
	month := "?month=" + time.Now().UTC().Format("2006-01")
	for _, path := range []string{
		"/orgs/fleeting/ledger", "/orgs/fleeting/calls", "/orgs/fleeting/focus" + month,
		"/orgs/fleeting/statement" + month + "&format=csv",
	} {
		if got := d.send("GET", path, ""); got.Code != 200 || !strings.Contains(got.Body.String(), "gpt-4o") {
			t.Errorf("%s: got %d %.300s", path, got.Code, got.Body)
		}
	}
	if now, all := d.names("/orgs", "id"), d.names("/orgs?deleted=true", "id"); strings.Contains(now, "fleeting") ||
		!strings.Contains(all, "fleeting") {
		t.Errorf("got the orgs %s, and with deleted ones %s", now, all)
	}
	d.refused(404, "org_not_found", "org", "GET", "/orgs/fleeting/users", "")
	d.refused(404, "org_not_found", "org", "GET", "/orgs/unknown/usage", "")
	d.refused(404, "org_not_found", "org", "GET", "/spend?org=unknown", "")
}
