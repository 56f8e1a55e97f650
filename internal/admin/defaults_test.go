package admin_test

import (
	"strings"
	"testing"
)

// withDefaults is a file with limits for every org.
const withDefaults = `
defaults:
  limits:
    - {name: month, amount: $500, calendar: month}
    - {name: hourly, subject: user, amount: $2, window: 1h}
`

// TestLimitsOfAllOrgs: setting a limit for all orgs is one change with one audit entry. It
// applies to every org, including ones created later, unless the org has a limit of that name.
func TestLimitsOfAllOrgs(t *testing.T) {
	d := deploy(t, withDefaults)
	d.expect(201, "POST", "/orgs", `{"id":"early"}`, "")
	before := d.changes()
	d.expect(200, "PATCH", "/orgs/all/limits/hourly?reason=launch", `{"amount":"$3"}`,
		`{"name":"hourly","subject":"user","shape":"window 1h","amount":3e9,"used":null,"sources":["defaults","all"]}`)
	if n := d.changes() - before; n != 1 {
		t.Errorf("got %d entries of the audit, want one", n)
	}
	d.audited(`{"action":"limit.set","org":"all","target":"hourly","reason":"launch"}`, "", `{"amount":"$3"}`)
	d.expect(200, "PATCH", "/orgs/all/limits/week", `{"amount":"$50","window":"7d"}`, `{"amount":5e10,"sources":["all"]}`)
	d.expect(201, "POST", "/orgs", `{"id":"late"}`, "")
	for _, org := range []string{"early", "late"} {
		path := "/orgs/" + org + "/limits"
		d.has(org, d.limit(path, "hourly"), `{"amount":3e9,"sources":["defaults","all"]}`)
		d.has(org, d.limit(path, "week"), `{"amount":5e10,"used":0,"sources":["all"]}`)
		d.has(org, d.limit(path, "month"), `{"amount":5e11,"sources":["defaults"]}`)
	}
	d.has("acme", d.limit("/orgs/acme/limits", "month"), `{"amount":1e11,"sources":["file"]}`)
	d.has("acme", d.limit("/orgs/acme/limits", "hourly"), `{"amount":3e9,"sources":["defaults","all"]}`)

	d.expect(200, "PATCH", "/orgs/late/limits/hourly", `{"amount":"$9"}`, `{"amount":9e9,"shape":"window 1h","sources":["defaults","all","redis"]}`)
	d.expect(200, "PATCH", "/orgs/acme/limits/hourly?user=alice", `{"amount":"$8"}`, `{"amount":8e9,"only":"alice"}`)
	d.has("bob", d.limit("/orgs/acme/limits?user=bob", "hourly"), `{"amount":3e9}`)

	if got := d.names("/orgs/all/limits", "name"); got != "month hourly week" {
		t.Errorf("limits of all orgs: got %s", got)
	}
	d.expect(204, "DELETE", "/orgs/all/limits/hourly", "", "")
	d.has("early", d.limit("/orgs/early/limits", "hourly"), `{"amount":2e9,"sources":["defaults"]}`)
	d.has("late", d.limit("/orgs/late/limits", "hourly"), `{"amount":9e9}`)
}

// TestLimitsOfAllOrgsRefused: a limit that would be invalid for all orgs, or for any one of
// them, is rejected before it is stored.
func TestLimitsOfAllOrgsRefused(t *testing.T) {
	d := deploy(t, withDefaults)
	d.expect(200, "PATCH", "/orgs/acme/limits/own?user=alice", `{"amount":"$1","window":"1h"}`, "")
	d.refused(400, "invalid_value", "", "PATCH", "/orgs/all/limits/new", `{"amount":"$1"}`)
	if why := d.refused(400, "invalid_value", "", "PATCH", "/orgs/all/limits/own", `{"amount":"$1","window":"1h"}`); !strings.Contains(why, "org acme conflicts with it") {
		t.Errorf("got %q, want the org named", why)
	}
	d.refused(400, "invalid_value", "org", "PATCH", "/orgs/all/limits/new?user=alice", `{"amount":"$1","window":"1h"}`)
	d.refused(400, "invalid_value", "org", "POST", "/orgs/all/limits/hourly/reset", `{"reason":"r"}`)
	d.refused(404, "org_not_found", "org", "POST", "/orgs/all/overrides", `{"limit":"month","add":"$1","until":"2030-01-01T00:00:00Z","reason":"r"}`)
	d.refused(404, "limit_not_set", "limit", "DELETE", "/orgs/all/limits/month", "")
	d.refused(400, "invalid_value", "id", "POST", "/orgs", `{"id":"all"}`)
}

// TestOrgCalledAll: if the file has an org named "all", the id means that org.
func TestOrgCalledAll(t *testing.T) {
	d := deploy(t, "  - {id: all}\n"+withDefaults)
	d.expect(200, "PATCH", "/orgs/all/limits/day", `{"amount":"$1","calendar":"day"}`, `{"used":0,"sources":["redis"]}`)
	if got := d.names("/orgs/acme/limits", "name"); strings.Contains(got, "day ") {
		t.Errorf("limits of acme: got %s", got)
	}
}

// TestApplyOverDefaults: a declared limit with the name of a default stores only the
// differences.
func TestApplyOverDefaults(t *testing.T) {
	d := deploy(t, withDefaults)
	d.expect(200, "POST", "/orgs/acme/apply", `{"org":{"id":"acme","limits":[{"name":"hourly","subject":"org","amount":"$2","window":"1h"}]}}`, "")
	d.has("acme", d.limit("/orgs/acme/limits", "hourly"), `{"subject":"org","amount":2e9,"shape":"window 1h"}`)
	again := d.expect(200, "POST", "/orgs/acme/apply", `{"dry_run":true,"org":{"id":"acme","limits":[{"name":"hourly","subject":"org","amount":"$2","window":"1h"}]}}`, "")
	if changes, _ := again["changes"].([]any); len(changes) != 0 {
		t.Errorf("applied again: got %v, want nothing to change", changes)
	}
}
