package admin_test

import (
	"strings"
	"testing"
	"time"
)

func TestCreateOrg(t *testing.T) {
	d := deploy(t)
	began := time.Now()
	made := d.expect(201, "POST", "/orgs",
		`{"id":"globex","name":"Globex","models":["gpt-*"],"providers":["openai"],"max_wait":"10m","weight":150,
		"default_output_limit":500,"hold":"max","on_disconnect":"cancel","on_store_failure":"deny"}`,
		`{"id":"globex","name":"Globex","models":["gpt-*"],"providers":["openai"],"max_wait":"10m0s","weight":150,
		"default_output_limit":500,
		"hold":"max","on_disconnect":"cancel","on_store_failure":"deny","disabled":false,"users":0,"keys":0,
		"source":"redis"}`)
	d.audited(`{"action":"org.create","org":"globex","target":"globex","actor":"ops","ip":"192.0.2.1"}`, "",
		`{"name":"Globex","weight":150}`)
	for _, field := range []string{"created_at", "updated_at"} {
		at, err := time.Parse(time.RFC3339, text(made[field]))
		if err != nil || at.Before(began.Add(-time.Second)) || at.After(time.Now()) {
			t.Errorf("got %s = %v, %v, want now", field, made[field], err)
		}
	}
	d.expect(200, "GET", "/orgs/globex", "", `{"name":"Globex"}`)
	got := d.names("/orgs", "id")
	if got != "acme globex" {
		t.Errorf("got the orgs %q, want both in order", got)
	}
}

// What a new org leaves unspecified has the configuration's default.
func TestDefaultsOfANewOrg(t *testing.T) {
	d := deploy(t)
	file := d.expect(200, "GET", "/orgs/acme", "",
		`{"source":"file","created_at":null,"updated_at":null,"users":2,"keys":1}`)
	made := d.expect(201, "POST", "/orgs", `{"id":"globex"}`, `{"name":"","models":[],"providers":[],"disabled":false}`)
	for _, field := range []string{
		"weight", "hold", "over_limit", "max_wait", "on_disconnect", "on_store_failure",
		"default_output_limit",
	} {
		if made[field] != file[field] {
			t.Errorf("got %s = %v, want %v as of an org of the file", field, made[field], file[field])
		}
	}
}

func TestCreateOrgIsRefused(t *testing.T) {
	d := deploy(t)
	d.expect(201, "POST", "/orgs", `{"id":"globex"}`, "")
	for _, tc := range []struct {
		status            int
		code, param, body string
	}{
		{409, "org_exists", "id", `{"id":"globex"}`},
		{409, "org_exists", "id", `{"id":"acme"}`},
		{400, "invalid_value", "id", `{"id":"Globex"}`},
		{400, "invalid_value", "id", `{"id":"a b"}`},
		{400, "invalid_value", "id", `{"id":"a}b"}`},
		{400, "invalid_value", "id", `{"id":"a:b"}`},
		{400, "invalid_value", "id", `{"id":"` + strings.Repeat("a", 65) + `"}`},
		{400, "invalid_value", "hold", `{"id":"other","hold":"sometimes"}`},
		{400, "invalid_value", "providers", `{"id":"other","providers":["nobody"]}`},
		{400, "invalid_value", "max_wait", `{"id":"other","max_wait":"soon"}`},
		{400, "invalid_value", "weight", `{"id":"other","weight":-1}`},
	} {
		d.refused(tc.status, tc.code, tc.param, "POST", "/orgs", tc.body)
	}
	d.expect(201, "POST", "/orgs", `{"id":"`+strings.Repeat("a", 64)+`"}`, "")
}

func TestUnknownOrgIsNotFound(t *testing.T) {
	d := deploy(t)
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, tc := range []struct{ method, path, body string }{
		{"GET", "", ""},
		{"PATCH", "", `{}`},
		{"DELETE", "", ""},
		{"GET", "/users", ""},
		{"POST", "/users", `{"id":"u"}`},
		{"GET", "/users/u", ""},
		{
			"PATCH", "/users/u",
			`{}`,
		},
		{"DELETE", "/users/u", ""},
		{"GET", "/keys", ""},
		{"POST", "/keys", `{"user":"u"}`},
		{"GET", "/keys/k", ""},
		{"PATCH", "/keys/k", `{}`},
		{"POST", "/keys/k/rotate", `{}`},
		{"DELETE", "/keys/k", ""},
		{"GET", "/limits", ""},
		{"PATCH", "/limits/l", `{}`},
		{"DELETE", "/limits/l", ""},
		{
			"POST", "/limits/l/reset",
			`{"reason":"r"}`,
		},
		{"GET", "/overrides", ""},
		{
			"POST", "/overrides",
			`{"limit":"l","add":"$1","until":"` + until + `","reason":"r"}`,
		},
		{"DELETE", "/overrides/o", ""},
		{"GET", "/credentials", ""},
		{"PUT", "/credentials/openai", `{"secret":"sk-0123456789","clear":true}`},
		{
			"DELETE",
			"/credentials/openai", "",
		},
		{"GET", "/usage", ""},
	} {
		d.refused(404, "org_not_found", "org", tc.method, "/orgs/nobody"+tc.path, tc.body)
	}
}

// A record overrides the file field by field, and null restores a field.
func TestUpdateOrgOfTheFile(t *testing.T) {
	d := deploy(t)
	d.expect(200, "PATCH", "/orgs/acme", `{"name":"Acme Inc","weight":200}`,
		`{"name":"Acme Inc","weight":200,"source":"both","users":2}`)
	d.audited(`{"action":"org.update","org":"acme","target":"acme"}`, "", `{"name":"Acme Inc","weight":200}`)
	d.expect(200, "PATCH", "/orgs/acme", `{"weight":50}`, `{"name":"Acme Inc","weight":50}`)
	d.audited(`{"action":"org.update"}`, `{"weight":200}`, `{"name":"Acme Inc","weight":50}`)
	d.expect(200, "PATCH", "/orgs/acme", `{"name":null}`, `{"name":"Acme","weight":50,"source":"both"}`)
	d.expect(200, "PATCH", "/orgs/acme", `{"disabled":true}`, `{"disabled":true}`)
	d.expect(200, "GET", "/orgs/acme/keys/k1", "", `{"status":"disabled","disabled":false}`)
	got := d.expect(200, "PATCH", "/orgs/acme", `{}`, `{"disabled":true,"weight":50}`)
	if got["created_at"] == got["updated_at"] {
		t.Errorf("got created_at = updated_at = %v after several changes", got["created_at"])
	}
}

func TestUpdateOrgIsRefused(t *testing.T) {
	d := deploy(t)
	for param, value := range map[string]string{
		"hold": `"sometimes"`, "over_limit": `"ignore"`, "providers": `["nobody"]`, "weight": `0`, "max_wait": `"-1s"`,
		"on_disconnect": `"?"`, "on_store_failure": `"maybe"`, "default_output_limit": `-1`,
	} {
		d.refused(400, "invalid_value", param, "PATCH", "/orgs/acme", `{"`+param+`":`+value+`}`)
	}
	d.expect(200, "GET", "/orgs/acme", "", `{"source":"file"}`)
}

// Deleting the records restores the file's org.
func TestDeleteOrgOfTheFile(t *testing.T) {
	d := deploy(t)
	got := d.refused(409, "declared_in_file", "", "DELETE", "/orgs/acme", "")
	if !strings.Contains(got, "acme") {
		t.Errorf("got the message %q, want the org's id", got)
	}
	d.expect(200, "PATCH", "/orgs/acme", `{"name":"Other"}`, "")
	d.expect(201, "POST", "/orgs/acme/users", `{"id":"carol"}`, "")
	d.expect(204, "DELETE", "/orgs/acme?reason=tidy", "", "")
	d.audited(`{"action":"org.delete","org":"acme","reason":"tidy"}`, `{"name":"Other"}`, "")
	d.expect(200, "GET", "/orgs/acme", "", `{"name":"Acme","source":"file","users":2}`)
	d.refused(409, "declared_in_file", "", "DELETE", "/orgs/acme", "")
}

// An org of Redis is deleted together with all its records, in one write.
func TestDeleteOrgOfRedis(t *testing.T) {
	d := deploy(t)
	d.globex()
	d.expect(204, "DELETE", "/orgs/globex", "", "")
	d.audited(`{"action":"org.delete","target":"globex"}`, `{"name":"Globex"}`, "")
	d.refused(404, "org_not_found", "org", "GET", "/orgs/globex", "")
	d.refused(404, "org_not_found", "org", "DELETE", "/orgs/globex", "")
	left, err := d.rdb.HKeys(t.Context(), "lg:{identity:}:records").Result()
	if err != nil || len(left) > 0 {
		t.Errorf("got the records %v, %v, want none", left, err)
	}
	d.expect(201, "POST", "/orgs", `{"id":"globex"}`, `{"users":0,"name":""}`)
}

// globex creates an org with every kind of data.
func (d *deployment) globex() {
	d.t.Helper()
	d.expect(201, "POST", "/orgs", `{"id":"globex","name":"Globex"}`, "")
	d.expect(201, "POST", "/orgs/globex/users", `{"id":"gus","name":"Gus"}`, "")
	d.expect(201, "POST", "/orgs/globex/keys", `{"id":"g1","user":"gus"}`, "")
	d.expect(200, "PATCH", "/orgs/globex/limits/daily", `{"subject":"user","amount":"$5","window":"24h"}`, "")
	d.expect(201, "POST", "/orgs/globex/overrides",
		`{"limit":"daily","user":"gus","add":"$1","until":"`+in(time.Hour)+`","reason":"launch"}`, "")
	d.expect(200, "PUT", "/orgs/globex/credentials/openai", `{"secret":"sk-globex-0123456789","clear":true}`, "")
}

// Two processes create the same org: the second, which does not know the first's, gets the
// error that it exists.
func TestTwoProcessesMakeTheSame(t *testing.T) {
	d := deploy(t)
	other := *d
	other.api = serve(t, fileText(), d.rdb)
	d.globex()
	other.refused(409, "org_exists", "id", "POST", "/orgs", `{"id":"globex"}`)
	other.api = serve(t, fileText(), d.rdb)
	d.expect(201, "POST", "/orgs/globex/users", `{"id":"gina"}`, "")
	other.refused(409, "user_exists", "id", "POST", "/orgs/globex/users", `{"id":"gina"}`)
	other.api = serve(t, fileText(), d.rdb)
	d.expect(201, "POST", "/orgs/globex/keys", `{"id":"g2","user":"gus"}`, "")
	other.refused(409, "key_exists", "id", "POST", "/orgs/globex/keys", `{"id":"g2","user":"gus"}`)
}

// TestSpreadOrg: an org is spread at runtime only if its limits allow it, and then gets no limit
// that does not.
func TestSpreadOrg(t *testing.T) {
	d := deploy(t)
	d.expect(201, "POST", "/orgs", `{"id":"globex","spread":16}`, `{"id":"globex","spread":16}`)
	d.expect(200, "PATCH", "/orgs/globex/limits/day", `{"subject":"user","amount":"$5","window":"1d"}`, `{"name":"day"}`)
	d.refused(400, "invalid_value", "spread", "PATCH", "/orgs/globex/limits/all", `{"amount":"$5","window":"1d"}`)
	d.refused(400, "invalid_value", "spread", "PATCH", "/orgs/globex/limits/all",
		`{"subject":"ip","amount":"$5","window":"1d"}`)
	d.refused(400, "invalid_value", "", "PATCH", "/orgs/all/limits/every", `{"amount":"$5","window":"1d"}`)
	d.expect(200, "PATCH", "/orgs/globex/limits/all", `{"amount":"$5","window":"1d","mode":"shadow"}`, `{"mode":"shadow"}`)
	d.refused(400, "invalid_value", "spread", "PATCH", "/orgs/globex/limits/all", `{"mode":"enforce"}`)
	d.expect(200, "PATCH", "/orgs/globex", `{"spread":null}`, `{"spread":1}`)
	d.expect(200, "PATCH", "/orgs/globex/limits/all", `{"mode":"enforce"}`, `{"mode":"enforce"}`)
	d.refused(400, "invalid_value", "spread", "PATCH", "/orgs/globex", `{"spread":4}`)
}

// TestSpreadOrgByAddress: an org that is spread by address gets no limit of a single user or key.
func TestSpreadOrgByAddress(t *testing.T) {
	d := deploy(t)
	d.expect(201, "POST", "/orgs", `{"id":"globex","spread":16}`, `{"id":"globex","spread":16}`)
	d.expect(200, "PATCH", "/orgs/globex/limits/door", `{"subject":"ip","amount":"$5","window":"1d"}`, `{"name":"door"}`)
	d.expect(201, "POST", "/orgs/globex/users", `{"id":"gus"}`, "")
	d.expect(201, "POST", "/orgs/globex/keys", `{"id":"g1","user":"gus"}`, "")
	d.refused(400, "invalid_value", "spread", "PATCH", "/orgs/globex/limits/day?user=gus", `{"amount":"$5","window":"1d"}`)
	d.refused(400, "invalid_value", "spread", "PATCH", "/orgs/globex/keys/g1", `{"concurrency":3}`)
}
