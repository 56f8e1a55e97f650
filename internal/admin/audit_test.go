package admin_test

import (
	"fmt"
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

func TestAuditFilters(t *testing.T) {
	d := deploy(t)
	d.busy()
	for query, want := range map[string]string{
		"":                                "org.update admin.create org.create user.create org.update",
		"?org=acme":                       "org.update user.create org.update",
		"?org=globex":                     "org.create",
		"?actor=ops":                      "org.update user.create org.update",
		"?actor=local:root@host":          "admin.create org.create",
		"?action=org.update":              "org.update org.update",
		"?org=acme&action=user.create":    "user.create",
		"?org=nobody":                     "",
		"?from=" + in(time.Hour):          "",
		"?to=" + in(-time.Hour):           "",
		"?from=" + in(-time.Hour):         "org.update admin.create org.create user.create org.update",
		"?to=" + in(time.Hour) + "&org=x": "",
	} {
		got := d.names("/audit"+query, "action")
		if got != want {
			t.Errorf("%q: got %q, want %q", query, got, want)
		}
	}
}

func TestAuditIsPaged(t *testing.T) {
	d := deploy(t)
	d.busy()
	var pages []string
	after := ""
	for range 4 {
		page := d.expect(200, "GET", "/audit?limit=2"+after, "", `{"object":"list"}`)
		list, _ := page["data"].([]any)
		var actions []string
		for _, one := range list {
			e, _ := one.(map[string]any)
			actions = append(actions, text(e["action"]))
			after = "&after=" + text(e["id"])
		}
		pages = append(pages, fmt.Sprint(strings.Join(actions, " "), " ", page["has_more"]))
		if page["has_more"] == false {
			break
		}
	}
	want := "org.update admin.create true|org.create user.create true|org.update false"
	if got := strings.Join(pages, "|"); got != want {
		t.Errorf("got the pages %s, want %s", got, want)
	}
}

// A page of filtered entries is full even if most entries do not match.
func TestAuditPagesOfAFilter(t *testing.T) {
	d := deploy(t)
	d.busy()
	page := d.expect(200, "GET", "/audit?limit=1&action=user.create", "", `{"has_more":false}`)
	if list, _ := page["data"].([]any); len(list) != 1 {
		t.Errorf("got %v, want the one entry", page)
	}
	d.expect(200, "GET", "/audit?limit=1&action=org.update", "", `{"has_more":true}`)
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

func TestAuditOfAnEmptyStore(t *testing.T) {
	d := deploy(t)
	answer := d.expect(200, "GET", "/audit", "", `{"object":"list","has_more":false}`)
	if list, ok := answer["data"].([]any); !ok || len(list) > 0 {
		t.Errorf("got data = %v, want an empty list", answer["data"])
	}
}
