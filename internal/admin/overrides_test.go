package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/tenants"
)

// in returns a time from now, in the API's format.
func in(d time.Duration) string {
	return time.Now().Add(d).UTC().Truncate(time.Second).Format(time.RFC3339)
}

// override creates an override and returns its id.
func (d *deployment) override(body, fields string) string {
	d.t.Helper()
	return text(d.expect(201, "POST", "/orgs/acme/overrides", body, fields)["id"])
}

func TestOverrideAddsToALimit(t *testing.T) {
	d := deploy(t)
	d.spend(budget.Call{Org: "acme", User: "alice"}, budget.Settlement{Actual: budget.Amounts{Cost: 9 * dollar}}, daily)
	until := in(time.Hour)
	id := d.override(`{"limit":"daily","user":"alice","add":"$200","until":"`+until+`","reason":"launch day"}`,
		`{"limit":"daily","only":"alice","add":2e11,"amount":0,"unit":"nano_usd","until":"`+until+`","active":true,
		"reason":"launch day","by":"ops"}`)
	d.audited(`{"action":"limit.override","org":"acme","target":"`+id+`","reason":"launch day"}`, "",
		`{"limit":"daily","only":"alice","add":2e11}`)
	d.has("alice", d.limit("/orgs/acme/limits?user=alice", "daily"),
		`{"amount":210e9,"base_amount":1e10,"used":9e9,"remaining":201e9,"override_until":"`+until+`"}`)
	d.has("bob", d.limit("/orgs/acme/limits?user=bob", "daily"), `{"amount":1e10,"override_until":null}`)
}

// An override without a user applies to all that the limit counts.
func TestOverrideForAll(t *testing.T) {
	d := deploy(t)
	d.override(`{"limit":"daily","add":"-$5","until":"`+in(time.Hour)+`","reason":"save"}`, `{"only":"","add":-5e9}`)
	for _, user := range []string{"alice", "bob"} {
		d.has(user, d.limit("/orgs/acme/limits?user="+user, "daily"), `{"amount":5e9,"base_amount":1e10}`)
	}
	d.override(`{"limit":"month","add":"+$1","until":"`+in(time.Hour)+`","reason":"r"}`, `{"add":1e9}`)
	d.has("month", d.limit("/orgs/acme/limits", "month"), `{"amount":101e9}`)
	d.override(`{"limit":"rate","add":"30","until":"`+in(time.Hour)+`","reason":"r"}`, `{"add":30,"unit":"requests"}`)
	d.has("rate", d.limit("/orgs/acme/limits?user=alice", "rate"), `{"amount":90}`)
	d.override(`{"limit":"burst","key":"k1","amount":"9000","until":"`+in(time.Hour)+`","reason":"r"}`,
		`{"only":"k1","amount":9000,"unit":"tokens"}`)
	d.has("burst", d.limit("/orgs/acme/limits?key=k1", "burst"), `{"amount":9000,"base_amount":5000}`)
}

// Several overrides add up; of those that replace the amount, the newest applies.
func TestSeveralOverrides(t *testing.T) {
	d := deploy(t)
	soon, late := in(time.Hour), in(2*time.Hour)
	d.override(`{"limit":"month","add":"$10","until":"`+late+`","reason":"r"}`, "")
	d.override(`{"limit":"month","add":"$20","until":"`+soon+`","reason":"r"}`, "")
	d.has("month", d.limit("/orgs/acme/limits", "month"), `{"amount":130e9,"override_until":"`+soon+`"}`)
	d.override(`{"limit":"month","amount":"$7","until":"`+late+`","reason":"r"}`, `{"amount":7e9,"add":0}`)
	d.override(`{"limit":"month","amount":"$5","until":"`+late+`","reason":"r"}`, "")
	d.has("month", d.limit("/orgs/acme/limits", "month"), `{"amount":35e9,"base_amount":1e11}`)
	got := d.names("/orgs/acme/overrides", "limit")
	if got != "month month month month" {
		t.Errorf("got the overrides %q, want four of month", got)
	}
}

func TestEndOverride(t *testing.T) {
	d := deploy(t)
	id := d.override(`{"limit":"month","add":"$10","until":"`+in(time.Hour)+`","reason":"r"}`, "")
	d.expect(204, "DELETE", "/orgs/acme/overrides/"+id+"?reason=done", "", "")
	d.audited(`{"action":"limit.override.end","org":"acme","target":"`+id+`","reason":"done"}`,
		`{"limit":"month","add":1e10}`, "")
	d.has("month", d.limit("/orgs/acme/limits", "month"), `{"amount":1e11,"override_until":null,"overrides":[]}`)
	d.refused(404, "override_not_found", "override", "DELETE", "/orgs/acme/overrides/"+id, "")
}

// past stores an override that expired a while ago.
func (d *deployment) past(id string, ago time.Duration) {
	d.t.Helper()
	at := time.Now().UTC().Add(-ago)
	d.commit(tenants.Ref{Kind: tenants.KindOverride, Org: "acme", ID: id}, tenants.Override{
		Limit: "month", Add: int64(dollar), Until: at, Reason: "r", By: "ops", Stamp: tenants.Stamp{
			Created: at,
			Updated: at,
		},
	})
}

// An expired override has no effect, is listed as over, and is removed a week later, when a new
// one is created.
func TestOverridesThatEnded(t *testing.T) {
	d := deploy(t)
	d.past("old", 8*24*time.Hour)
	d.past("recent", time.Hour)
	d.api = serve(t, fileText(), d.rdb)
	list := d.list("/orgs/acme/overrides")
	if len(list) != 2 || list[0]["id"] != "old" || list[0]["active"] != false || list[1]["active"] != false {
		t.Errorf("got %v, want both, neither active", list)
	}
	d.has("month", d.limit("/orgs/acme/limits", "month"), `{"amount":1e11,"overrides":[]}`)
	id := d.override(`{"limit":"month","add":"$10","until":"`+in(time.Hour)+`","reason":"r"}`, "")
	got, want := d.names("/orgs/acme/overrides", "id"), "recent "+id
	if got != want {
		t.Errorf("got the overrides %q, want %q: what ended a week ago is gone", got, want)
	}
}

func TestOverrideIsRefused(t *testing.T) {
	d := deploy(t)
	soon, past, far := in(time.Hour), in(-time.Second), in(367*24*time.Hour)
	for _, tc := range []struct {
		fields, until string
		status        int
		code, param   string
	}{
		{`"limit":"nothing","add":"$1","reason":"r"`, soon, 404, "limit_not_found", "limit"},
		{`"add":"$1","reason":"r"`, soon, 404, "limit_not_found", "limit"},
		{`"limit":"daily","user":"nobody","add":"$1","reason":"r"`, soon, 404, "user_not_found", "user"},
		{`"limit":"burst","key":"nothing","add":"1","reason":"r"`, soon, 404, "key_not_found", "key"},
		{`"limit":"month","user":"alice","add":"$1","reason":"r"`, soon, 400, "invalid_value", "user"},
		{`"limit":"daily","key":"k1","add":"$1","reason":"r"`, soon, 400, "invalid_value", "key"},
		{`"limit":"daily","ip":"10.0.0.1","add":"$1","reason":"r"`, soon, 400, "invalid_value", "ip"},
		{`"limit":"month","reason":"r"`, soon, 400, "invalid_value", "add"},
		{`"limit":"month","add":"$1","amount":"$1","reason":"r"`, soon, 400, "invalid_value", "add"},
		{`"limit":"month","add":"1","reason":"r"`, soon, 400, "invalid_value", "add"},
		{`"limit":"rate","add":"$1","reason":"r"`, soon, 400, "invalid_value", "add"},
		{`"limit":"month","add":"--$1","reason":"r"`, soon, 400, "invalid_value", "add"},
		{`"limit":"month","amount":"-$1","reason":"r"`, soon, 400, "invalid_value", "amount"},
		{`"limit":"month","amount":"$much","reason":"r"`, soon, 400, "invalid_value", "amount"},
		{`"limit":"rate","amount":"99999999999999999","reason":"r"`, soon, 400, "invalid_value", "amount"},
		{`"limit":"month","add":"$1"`, soon, 400, "missing_field", "reason"},
		{`"limit":"month","add":"$1","reason":"r"`, past, 400, "invalid_value", "until"},
		{`"limit":"month","add":"$1","reason":"r"`, far, 400, "invalid_value", "until"},
		{`"limit":"month","add":"$1","reason":"r"`, "tonight", 400, "invalid_value", "until"},
	} {
		d.refused(tc.status, tc.code, tc.param, "POST", "/orgs/acme/overrides",
			fmt.Sprintf(`{%s,"until":%q}`, tc.fields, tc.until))
	}
	d.refused(400, "invalid_value", "until", "POST", "/orgs/acme/overrides", `{"limit":"month","add":"$1","reason":"r"}`)
	got := d.list("/orgs/acme/overrides")
	if len(got) > 0 {
		t.Errorf("got the overrides %v, want none", got)
	}
}

// TestOverridesEndWithTheirSubject: a user or key that gets the id of a deleted one has only
// the general limits.
func TestOverridesEndWithTheirSubject(t *testing.T) {
	d := deploy(t)
	until := in(time.Hour)
	make := func() {
		d.expect(201, "POST", "/orgs/acme/users", `{"id":"carol"}`, "")
		d.expect(201, "POST", "/orgs/acme/keys", `{"id":"c1","user":"carol"}`, "")
	}
	make()
	d.override(`{"limit":"daily","user":"carol","add":"$200","until":"`+until+`","reason":"r"}`, "")
	d.override(`{"limit":"burst","key":"c1","amount":"9000","until":"`+until+`","reason":"r"}`, "")
	d.override(`{"limit":"daily","user":"alice","add":"$7","until":"`+until+`","reason":"r"}`, "")
	d.override(`{"limit":"month","add":"$1","until":"`+until+`","reason":"r"}`, "")
	d.expect(200, "PATCH", "/orgs/acme/limits/own", `{"subject":"user","only":"carol","amount":"$1","window":"1h"}`, "")
	d.expect(204, "DELETE", "/orgs/acme/keys/c1", "", "")
	d.expect(201, "POST", "/orgs/acme/keys", `{"id":"c1","user":"carol"}`, "")
	d.has("a new key", d.limit("/orgs/acme/limits?key=c1", "burst"), `{"amount":5000,"override_until":null}`)
	d.override(`{"limit":"burst","key":"c1","amount":"9000","until":"`+until+`","reason":"r"}`, "")
	d.expect(204, "DELETE", "/orgs/acme/users/carol", "", "")
	make()
	d.has("a new user", d.limit("/orgs/acme/limits?user=carol", "daily"), `{"amount":1e10,"override_until":null}`)
	d.has("its key", d.limit("/orgs/acme/limits?key=c1", "burst"), `{"amount":5000,"override_until":null}`)
	if got := d.names("/orgs/acme/limits?user=carol", "name"); strings.Contains(got, "own") {
		t.Errorf("a new user has the limits %s", got)
	}
	d.has("alice", d.limit("/orgs/acme/limits?user=alice", "daily"), `{"amount":17e9}`)
	d.has("the org", d.limit("/orgs/acme/limits", "month"), `{"amount":101e9}`)
}

// TestOverridesOfTheFileStay: deleting a user of the file deletes its runtime records, but the
// user stays.
func TestOverridesOfTheFileStay(t *testing.T) {
	d := deploy(t)
	d.expect(200, "PATCH", "/orgs/acme/users/alice", `{"disabled":true}`, "")
	d.override(`{"limit":"daily","user":"alice","add":"$7","until":"`+in(time.Hour)+`","reason":"r"}`, "")
	d.expect(204, "DELETE", "/orgs/acme/users/alice", "", "")
	d.has("alice", d.limit("/orgs/acme/limits?user=alice", "daily"), `{"amount":17e9}`)
}
