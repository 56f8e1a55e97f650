package admin_test

import (
	"testing"
	"time"
)

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
