package admin_test

import (
	"testing"
	"time"
)

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
