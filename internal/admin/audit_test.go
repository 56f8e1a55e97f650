package admin_test

import (
	"strings"
	"testing"
	"time"
)

// busy makes changes as two administrators in two orgs.
func (d *deployment) busy() {
	d.t.Helper()
	d.expect(200, "PATCH", "/orgs/acme", `{"name":"A"}`, "")
	d.expect(201, "POST", "/orgs/acme/users", `{"id":"carol"}`, "")
	d.onMachine().expect(201, "POST", "/orgs", `{"id":"globex"}`, "")
	d.onMachine().expect(201, "POST", "/admins", `{"id":"ann"}`, "")
	d.expect(200, "PATCH", "/orgs/acme", `{"name":"B"}`, "")
}

func TestAuditEntry(t *testing.T) {
	d := deploy(t)
	w := d.send("POST", "/orgs/acme/users?reason=new", `{"id":"carol"}`)
	d.audited(`{"actor":"ops","action":"user.create","org":"acme","target":"carol","reason":"new","ip":"192.0.2.1",
		"request_id":"`+w.Header().Get("X-Request-Id")+`"}`, "", `{}`)
	at, err := time.Parse(time.RFC3339, text(d.list("/audit")[0]["at"]))
	if err != nil || time.Since(at) > time.Minute || time.Since(at) < -time.Second {
		t.Errorf("got at = %v, %v, want now", at, err)
	}
}

func TestAuditIsRefused(t *testing.T) {
	d := deploy(t)
	d.busy()
	for query, param := range map[string]string{
		"from=yesterday": "from", "to=2026-11-01": "to", "limit=0": "limit", "limit=1001": "limit", "limit=ten": "limit",
		"limit=1.5":    "limit",
		"after=newest": "after", "after=-": "after", "after=1-2-3": "after", "after=0-0": "after", "after=1": "after",
		"after=" + strings.Repeat("9", 41):        "after",
		"after=" + strings.Repeat("9", 30) + "-0": "after",
	} {
		d.refused(400, "invalid_value", param, "GET", "/audit?"+query, "")
	}
	d.expect(200, "GET", "/audit?limit=1000", "", `{"has_more":false}`)
	d.expect(200, "GET", "/audit?limit=1", "", `{"has_more":true}`)
}
