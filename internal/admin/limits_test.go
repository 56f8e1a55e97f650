package admin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
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

func TestListLimits(t *testing.T) {
	d := deploy(t)
	for _, tc := range []struct{ query, name, want string }{
		{
			"", "month",
			`{"subject":"org","metric":"cost","unit":"nano_usd","mode":"enforce","shape":"calendar month UTC","amount":1e11,
			"base_amount":1e11,
			"used":0,"held":0,"remaining":1e11,"override_until":null,"overrides":[],"models":[],"endpoints":[],"only":""}`,
		},
		{
			"", "daily",
			`{"subject":"user","unit":"nano_usd","shape":"window 1d","amount":1e10,"used":null,"held":null,
			"remaining":null,"reset_seconds":null}`,
		},
		{"?user=alice", "daily", `{"used":0,"held":0,"remaining":1e10}`},
		{"?user=alice", "rate", `{"metric":"requests","unit":"requests","shape":"window 1m","amount":60,"used":0}`},
		{"?user=alice", "burst", `{"subject":"key","unit":"tokens","amount":5000,"used":null}`},
		{"?key=k1", "burst", `{"used":0,"remaining":5000}`},
		{"?key=k1", "daily", `{"used":0}`}, // usage of the key's user
		{"?user=alice&key=k1", "burst", `{"used":0}`},
	} {
		d.has("limits"+tc.query+" "+tc.name, d.limit("/orgs/acme/limits"+tc.query, tc.name), tc.want)
	}
}

// A key is subject to the limits of its user, including the user's own.
func TestLimitsOfAKey(t *testing.T) {
	d := deploy(t)
	d.expect(200, "PATCH", "/orgs/acme/limits/daily?user=alice", `{"amount":"$20"}`, "")
	d.expect(200, "PATCH", "/orgs/acme/limits/own?user=alice", `{"amount":"$1","window":"1h"}`, "")
	d.has("daily", d.limit("/orgs/acme/limits?key=k1", "daily"), `{"amount":2e10,"used":0}`)
	d.has("own", d.limit("/orgs/acme/limits?key=k1", "own"), `{"amount":1e9,"used":0}`)
}

func TestListLimitsIsRefused(t *testing.T) {
	d := deploy(t)
	d.refused(404, "user_not_found", "user", "GET", "/orgs/acme/limits?user=nobody", "")
	d.refused(404, "key_not_found", "key", "GET", "/orgs/acme/limits?key=nothing", "")
	d.refused(400, "invalid_value", "key", "GET", "/orgs/acme/limits?user=bob&key=k1", "")
}

// What was charged and what is held is reported for the requested subject.
func TestUseOfLimits(t *testing.T) {
	d := deploy(t)
	d.spend(budget.Call{Org: "acme", User: "alice"}, budget.Settlement{Actual: budget.Amounts{Cost: 3 * dollar}}, month,
		daily)
	d.spend(budget.Call{Org: "acme", User: "bob"}, budget.Settlement{Actual: budget.Amounts{Cost: dollar}}, month, daily)
	open := budget.Call{ID: wire.NewCallID(), Org: "acme", User: "alice"}
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

// Descriptions of how capacity returns.
func TestShapesOfLimits(t *testing.T) {
	d := deploy(t)
	for body, want := range map[string]string{
		`{"amount":"$5","window":"1h"}`:                                             "window 1h",
		`{"amount":"$5","window":"1h","exact":true}`:                                "exact window 1h",
		`{"amount":"$5","calendar":"day","tz":"Europe/Berlin"}`:                     "calendar day Europe/Berlin",
		`{"metric":"tokens","bucket":{"capacity":"6000","refill":"100/s"}}`:         "bucket, refilled in 1m",
		`{"amount":"$5","window":"5m","fixed":true}`:                                "fixed window 5m",
		`{"amount":"$5","calendar":"month","starts":"15"}`:                          "calendar month from 15 UTC",
		`{"metric":"concurrency","amount":"5"}`:                                     "open calls",
		`{"amount":"$5","window":"1h","mode":"shadow","models":["gpt-*"]}`:          "window 1h",
		`{"amount":"$5","window":"1h","endpoints":["embeddings"],"subject":"user"}`: "window 1h",
	} {
		d.expect(200, "PATCH", "/orgs/acme/limits/made", body, fmt.Sprintf(`{"name":"made","shape":%q}`, want))
		d.expect(204, "DELETE", "/orgs/acme/limits/made", "", "")
	}
}

func TestSetLimit(t *testing.T) {
	d := deploy(t)
	d.spend(budget.Call{Org: "acme"}, budget.Settlement{Actual: budget.Amounts{Cost: 4 * dollar}}, month)
	d.expect(200, "PATCH", "/orgs/acme/limits/month?reason=more", `{"amount":"$200"}`,
		`{"amount":2e11,"base_amount":2e11,"used":4e9,"remaining":196e9}`)
	d.audited(`{"action":"limit.set","org":"acme","target":"month","reason":"more"}`, "", `{"amount":"$200"}`)
	d.expect(200, "PATCH", "/orgs/acme/limits/month", `{"mode":"shadow"}`, `{"mode":"shadow","amount":2e11}`)
	d.audited(`{"action":"limit.set"}`, `{"amount":"$200"}`, `{"amount":"$200","mode":"shadow"}`)
	d.expect(200, "PATCH", "/orgs/acme/limits/month", `{"amount":null}`, `{"mode":"shadow","amount":1e11}`)
	d.expect(200, "PATCH", "/orgs/acme/limits/week", `{"amount":"$50","window":"7d"}`,
		`{"name":"week","subject":"org","amount":5e10}`)
	got := d.names("/orgs/acme/limits", "name")
	if got != "month daily rate burst week" {
		t.Errorf("got the limits %q, want the file's and week", got)
	}
}

// A limit for one user replaces the org's for that user only.
func TestSetLimitOfOneUser(t *testing.T) {
	d := deploy(t)
	d.expect(200, "PATCH", "/orgs/acme/limits/daily?user=alice", `{"amount":"$20"}`,
		`{"only":"alice","amount":2e10,"used":0}`)
	d.audited(`{"action":"limit.set","target":"alice daily"}`, "", `{"amount":"$20"}`)
	d.has("alice", d.limit("/orgs/acme/limits?user=alice", "daily"), `{"amount":2e10}`)
	d.has("bob", d.limit("/orgs/acme/limits?user=bob", "daily"), `{"amount":1e10}`)
	d.expect(204, "DELETE", "/orgs/acme/limits/daily?user=alice", "", "")
	d.audited(`{"action":"limit.unset","target":"alice daily"}`, `{"amount":"$20"}`, "")
	d.has("alice after that", d.limit("/orgs/acme/limits?user=alice", "daily"), `{"amount":1e10}`)
}

// TestSetLimitIsRefused: the error names the invalid field, if there is one.
func TestSetLimitIsRefused(t *testing.T) {
	d := deploy(t)
	for _, tc := range []struct {
		path        string
		status      int
		code, param string
		body        string
	}{
		{"Month", 400, "invalid_value", "limit", `{"amount":"$5"}`},
		{"month?user=nobody", 404, "user_not_found", "user", `{"amount":"$5"}`},
		{"made", 400, "invalid_value", "", `{}`},
		{"made", 400, "invalid_value", "amount", `{"amount":"5","window":"1h"}`},
		{"made", 400, "invalid_value", "", `{"amount":"$5"}`},
		{"made", 400, "invalid_value", "calendar", `{"amount":"$5","window":"1h","calendar":"day"}`},
		{"made", 400, "invalid_value", "metric", `{"amount":"$5","window":"1h","metric":"love"}`},
		{"made", 400, "invalid_value", "tz", `{"amount":"$5","calendar":"day","tz":"Atlantis"}`},
		{"made", 400, "invalid_value", "bucket.capacity", `{"metric":"tokens","bucket":{"capacity":"$5"}}`},
		{"made", 400, "invalid_value", "endpoints", `{"amount":"$5","window":"1h","endpoints":["chat"]}`},
		{"made", 400, "invalid_value", "", `{"amount":"$5","window":"1h","endpoints":["chat","talk"]}`},
		{"month", 400, "invalid_value", "amount", `{"amount":"-$5"}`},
		{"month", 400, "invalid_value", "mode", `{"mode":"perhaps"}`},
		{"month", 400, "invalid_value", "amount", `{"amount":5}`},
	} {
		d.refused(tc.status, tc.code, tc.param, "PATCH", "/orgs/acme/limits/"+tc.path, tc.body)
	}
	d.has("month", d.limit("/orgs/acme/limits", "month"), `{"amount":1e11,"mode":"enforce"}`)
}

// Unsetting restores the file's limit; a limit that is only in the file cannot be unset.
func TestUnsetLimit(t *testing.T) {
	d := deploy(t)
	d.refused(404, "limit_not_set", "limit", "DELETE", "/orgs/acme/limits/month", "")
	d.refused(404, "limit_not_set", "limit", "DELETE", "/orgs/acme/limits/nothing", "")
	d.refused(404, "limit_not_set", "limit", "DELETE", "/orgs/acme/limits/daily?user=alice", "")
	d.expect(200, "PATCH", "/orgs/acme/limits/month", `{"amount":"$1"}`, "")
	d.expect(204, "DELETE", "/orgs/acme/limits/month?reason=back", "", "")
	d.audited(`{"action":"limit.unset","target":"month","reason":"back"}`, `{"amount":"$1"}`, "")
	d.has("month", d.limit("/orgs/acme/limits", "month"), `{"amount":1e11}`)
	d.refused(404, "limit_not_set", "limit", "DELETE", "/orgs/acme/limits/month", "")
}

// A reset clears the usage of one subject, and keeps open calls and the ledger.
func TestResetLimit(t *testing.T) {
	d := deploy(t)
	for _, user := range []string{"alice", "bob"} {
		d.spend(budget.Call{Org: "acme", User: user}, budget.Settlement{Actual: budget.Amounts{Cost: 3 * dollar}}, daily)
	}
	open := budget.Call{ID: wire.NewCallID(), Org: "acme", User: "alice"}
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

func TestResetLimitIsRefused(t *testing.T) {
	d := deploy(t)
	for _, tc := range []struct {
		limit, body string
		status      int
		code, param string
	}{
		{"month", `{}`, 400, "missing_field", "reason"},
		{"month", `{"reason":""}`, 400, "missing_field", "reason"},
		{"month", `{"reason":"a\u0000b"}`, 400, "invalid_value", "reason"},
		{"nothing", `{"reason":"r"}`, 404, "limit_not_found", "limit"},
		{"daily", `{"reason":"r"}`, 400, "missing_field", "user"},
		{"daily", `{"reason":"r","user":"nobody"}`, 404, "user_not_found", "user"},
		{"burst", `{"reason":"r","user":"alice"}`, 400, "missing_field", "key"},
		{"burst", `{"reason":"r","key":"nothing"}`, 404, "key_not_found", "key"},
		{"month", `{"reason":"r","org":"acme"}`, 400, "unknown_field", "org"},
	} {
		d.refused(tc.status, tc.code, tc.param, "POST", "/orgs/acme/limits/"+tc.limit+"/reset", tc.body)
	}
	d.expect(200, "POST", "/orgs/acme/limits/burst/reset", `{"reason":"r","key":"k1"}`, `{"used":0}`)
}

// TestReopenLimits: after a data loss in Redis an org's limits are shown as closed, and an
// administrator can reopen them, with a reason.
func TestReopenLimits(t *testing.T) {
	d := deploy(t)
	hold := func() error {
		call := budget.Call{ID: wire.NewCallID(), Org: "acme", User: "alice"}
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
