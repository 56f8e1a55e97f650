package admin_test

import (
	"testing"
	"time"

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
