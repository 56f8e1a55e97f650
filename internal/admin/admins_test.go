package admin_test

import (
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/auth/keys"
)

func TestListAdministrators(t *testing.T) {
	d := deploy(t)
	want := map[string]string{
		"ops":    `{"status":"active","read_only":false,"source":"file","expires":null,"last4":""}`,
		"viewer": `{"status":"active","read_only":true}`,
		"off":    `{"status":"disabled","disabled":true}`,
		"gone":   `{"status":"expired","expires":"2001-01-01T00:00:00Z"}`,
	}
	list := d.list("/admins")
	if len(list) != len(want) {
		t.Errorf("got %d administrators, want %d", len(list), len(want))
	}
	for _, a := range list {
		d.has(text(a["id"]), a, want[text(a["id"])])
	}
}

// A new administrator's key works immediately, also in a process that has not yet heard of it.
func TestCreateAdministrator(t *testing.T) {
	d := deploy(t)
	elsewhere := *d
	elsewhere.api = serve(t, fileText(), d.rdb)
	made := d.onMachine().expect(201, "POST", "/admins", `{"id":"ann","name":"Ann"}`,
		`{"id":"ann","name":"Ann","status":"active","read_only":false,"source":"redis"}`)
	secret := text(made["secret"])
	class, err := keys.Check(secret)
	if err != nil || class != keys.Admin || made["last4"] != keys.Last4(secret) {
		t.Errorf("got a key of class %q, %v, last4 %v; want an administrator's", class, err, made["last4"])
	}
	d.audited(`{"action":"admin.create","actor":"local:root@host","target":"ann"}`, "",
		`{"name":"Ann","last4":"`+keys.Last4(secret)+`"}`)
	elsewhere.as(secret).expect(200, "PATCH", "/orgs/acme", `{"name":"A"}`, "")
	d.audited(`{"actor":"ann","action":"org.update"}`, "", `{"name":"A"}`)
	for _, path := range []string{"/admins", "/audit"} {
		body := d.send("GET", path, "").Body.String()
		if strings.Contains(body, secret) || strings.Contains(body, "sha256") {
			t.Errorf("GET %s has the key or its hash: %s", path, body)
		}
	}
}

func TestCreateAdministratorIsRefused(t *testing.T) {
	d := deploy(t).onMachine()
	d.expect(201, "POST", "/admins", `{"id":"ann"}`, "")
	d.refused(409, "admin_exists", "id", "POST", "/admins", `{"id":"ann"}`)
	d.refused(409, "admin_exists", "id", "POST", "/admins", `{"id":"ops"}`)
	d.refused(400, "invalid_value", "id", "POST", "/admins", `{"id":"Ann B"}`)
	d.refused(400, "unknown_field", "hash", "POST", "/admins", `{"id":"bea","hash":"sha256:00"}`)
	d.refused(400, "invalid_value", "expires", "POST", "/admins", `{"id":"bea","expires":"never"}`)
}

// Changes to an administrator apply from the next request.
func TestUpdateAdministrator(t *testing.T) {
	d := deploy(t)
	local := d.onMachine()
	ann := d.as(text(local.expect(201, "POST", "/admins", `{"id":"ann"}`, "")["secret"]))
	for _, tc := range []struct {
		patch, fields string
		read, write   int
	}{
		{`{"read_only":true,"name":"Ann"}`, `{"read_only":true,"name":"Ann","status":"active"}`, 200, 403},
		{`{"read_only":false}`, `{"read_only":false,"name":"Ann"}`, 200, 200},
		{`{"disabled":true}`, `{"status":"disabled"}`, 401, 401},
		{`{"disabled":null,"expires":"2001-01-01T00:00:00Z"}`, `{"status":"expired","disabled":false}`, 401, 401},
		{`{"expires":null}`, `{"status":"active","expires":null,"name":"Ann"}`, 200, 200},
	} {
		local.expect(200, "PATCH", "/admins/ann?reason=r", tc.patch, tc.fields)
		d.audited(`{"action":"admin.update","target":"ann","reason":"r"}`, `{}`, `{}`)
		w := ann.send("GET", "/orgs", "")
		if w.Code != tc.read {
			t.Errorf("after %s: reading got %d, want %d", tc.patch, w.Code, tc.read)
		}
		w = ann.send("PATCH", "/orgs/acme", `{"name":"A"}`)
		if w.Code != tc.write {
			t.Errorf("after %s: writing got %d, want %d", tc.patch, w.Code, tc.write)
		}
	}
	local.refused(404, "admin_not_found", "admin", "PATCH", "/admins/nobody", `{}`)
	local.refused(400, "unknown_field", "hash", "PATCH", "/admins/ann", `{"hash":"sha256:00"}`)
}
