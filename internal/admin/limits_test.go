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

const dollar = pricing.Nano(1_000_000_000)

// month and daily are limits of the file, in the form used for holds.
var (
	month = budget.Limit{
		ID: "month", Subject: budget.Org, Metric: budget.Cost,
		Shape: budget.Shape{Kind: budget.Calendar, Amount: int64(100 * dollar), Calendar: "month"},
	}
	daily = budget.Limit{
		ID: "daily", Subject: budget.User, Metric: budget.Cost,
		Shape: budget.Shape{Kind: budget.Window, Amount: int64(10 * dollar), Window: 24 * time.Hour},
	}
)

// limit returns the limit of this name from a list.
func (d *deployment) limit(path, name string) object {
	d.t.Helper()
	for _, l := range d.list(path) {
		if l["name"] == name {
			return l
		}
	}
	d.t.Fatalf("GET %s: got no limit %s", path, name)
	return nil
}

// What was charged and what is held is reported for the requested subject.
func TestUseOfLimits(t *testing.T) {
	d := deploy(t)
	d.spend(ledger.Call{Org: "acme", User: "alice"}, budget.Settlement{Actual: budget.Amounts{Cost: 3 * dollar}}, month,
		daily)
	d.spend(ledger.Call{Org: "acme", User: "bob"}, budget.Settlement{Actual: budget.Amounts{Cost: dollar}}, month, daily)
	open := ledger.Call{ID: wire.NewCallID(), Org: "acme", User: "alice"}
	_, err := d.books.Hold(t.Context(), budget.Terms{Limits: []budget.Limit{month, daily}, Call: open, Max: budget.Amounts{Cost: 2 * dollar}})
	if err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]string{
		"alice": `{"used":5e9,"held":2e9,"remaining":5e9}`,
		"bob":   `{"used":1e9,"held":0,"remaining":9e9}`,
	} {
		d.has(user, d.limit("/orgs/acme/limits?user="+user, "daily"), want)
		d.has("the org", d.limit("/orgs/acme/limits?user="+user, "month"), `{"used":6e9,"held":2e9,"remaining":94e9}`)
	}
	if reset, _ := d.limit("/orgs/acme/limits?user=bob", "daily")["reset_seconds"].(float64); reset <= 0 ||
		reset > 25*3600 {
		t.Errorf("got reset_seconds %v, want within the window", reset)
	}
}

// A reset clears the usage of one subject, and keeps open calls and the ledger.
func TestResetLimit(t *testing.T) {
	d := deploy(t)
	for _, user := range []string{"alice", "bob"} {
		d.spend(ledger.Call{Org: "acme", User: user}, budget.Settlement{Actual: budget.Amounts{Cost: 3 * dollar}}, daily)
	}
	open := ledger.Call{ID: wire.NewCallID(), Org: "acme", User: "alice"}
	_, err := d.books.Hold(t.Context(), budget.Terms{Limits: []budget.Limit{daily}, Call: open, Max: budget.Amounts{Cost: 2 * dollar}})
	if err != nil {
		t.Fatal(err)
	}
	d.expect(200, "POST", "/orgs/acme/limits/daily/reset", `{"user":"alice","reason":"our fault"}`,
		`{"name":"daily","used":2e9,"held":2e9,"remaining":8e9}`)
	d.audited(`{"action":"limit.reset","org":"acme","target":"daily","reason":"our fault"}`, `{"used":5e9,"held":2e9}`, "")
	d.has("bob", d.limit("/orgs/acme/limits?user=bob", "daily"), `{"used":3e9}`)
	total, _ := d.expect(200, "GET", "/orgs/acme/usage", "", "")["total"].(map[string]any)
	if total["cost_nano_usd"] != 6e9 {
		t.Errorf("got the ledger's total %v, want 6e9", total["cost_nano_usd"])
	}
	d.expect(200, "POST", "/orgs/acme/limits/daily/reset", `{"user":"alice","reason":"again"}`, `{"used":2e9,"held":2e9}`)
}

// TestReopenLimits: after a data loss in Redis an org's limits are shown as closed, and an
// administrator can reopen them, with a reason.
func TestReopenLimits(t *testing.T) {
	d := deploy(t)
	hold := func() error {
		call := ledger.Call{ID: wire.NewCallID(), Org: "acme", User: "alice"}
		_, err := d.books.Hold(t.Context(), budget.Terms{Limits: []budget.Limit{daily}, Call: call, Max: budget.Amounts{Cost: 1}})
		return err
	}
	if err := hold(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"lg:epoch", "lg:{acme}:epoch"} { // keep the administrator's own key
		if err := d.rdb.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := hold(); err == nil {
		t.Fatal("held after the loss")
	}
	if l := d.limit("/orgs/acme/limits?user=alice", "daily"); l["closed_until"] == nil || l["remaining"] != 0.0 {
		t.Errorf("shown as %v", l)
	}
	d.expect(400, "POST", "/orgs/acme/limits/reopen", `{}`, "")
	d.expect(204, "POST", "/orgs/acme/limits/reopen", `{"reason":"a flush"}`, "")
	d.audited(`{"action":"limits.reopen","org":"acme","reason":"a flush"}`, "", "")
	if l := d.limit("/orgs/acme/limits?user=alice", "daily"); l["closed_until"] != nil {
		t.Errorf("shown as %v", l)
	}
	if err := hold(); err != nil {
		t.Error(err)
	}
	d.expect(204, "POST", "/limits/reopen", `{"reason":"a flush"}`, "")
}

// TestOrgCalledAll: if the file has an org named "all", the id means that org.
func TestOrgCalledAll(t *testing.T) {
	d := deploy(t, "  - {id: all}\n")
	d.expect(200, "PATCH", "/orgs/all/limits/day", `{"amount":"$1","calendar":"day"}`, `{"used":0,"sources":["redis"]}`)
	if got := d.names("/orgs/acme/limits", "name"); strings.Contains(got, "day ") {
		t.Errorf("limits of acme: got %s", got)
	}
}
