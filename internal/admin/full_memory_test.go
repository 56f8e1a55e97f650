package admin_test

import (
	"net/http"
	"strings"
	"testing"
)

// With no memory left in Redis, an administrator can end, disable, delete, stop and reset.
func TestFullMemoryTakesAdministration(t *testing.T) {
	d := deploy(t, "brakes: [{name: loop, by: user, when: {calls: {more_than: 9, window: 1m}}}]\n")
	b := d.batch()
	d.expect(200, "POST", "/orgs/acme/brakes/loop/stop", `{"subject":"user=alice","reason":"x"}`, `{}`)
	run := parse(t, d.send("POST", "/orgs/acme/keys/k1/children", `{"amount":"$1"}`).Body.String())
	d.expect(201, "POST", "/orgs", `{"id":"extra"}`, `{}`)
	d.expect(201, "POST", "/orgs/extra/users", `{"id":"eve"}`, `{}`)
	d.expect(201, "POST", "/orgs/extra/keys", `{"id":"k9","user":"eve"}`, `{}`)
	limit := func(most string) {
		if err := d.rdb.ConfigSet(t.Context(), "maxmemory", most).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit("1")
	defer limit("0")
	for _, line := range []string{
		"POST /orgs/acme/runs/" + run["id"].(string) + "/end",
		"POST /orgs/acme/limits/month/reset {\"reason\":\"x\"}",
		"POST /orgs/acme/limits/reset {\"reason\":\"x\"}",
		"POST /orgs/acme/brakes/loop/release {\"subject\":\"user=alice\",\"reason\":\"x\"}",
		"POST /orgs/acme/brakes/loop/stop {\"subject\":\"user=bob\",\"reason\":\"x\"}",
		"POST /orgs/acme/users/alice/batches/" + b.ID + "/cancel {}",
		"PATCH /orgs/extra/keys/k9 {\"disabled\":true}",
		"DELETE /orgs/extra/keys/k9",
		"PATCH /orgs/extra/users/eve {\"disabled\":true}",
		"DELETE /orgs/extra/users/eve",
		"PUT /orgs/extra/stop {\"reason\":\"x\"}",
		"DELETE /orgs/extra/stop",
		"PATCH /orgs/extra {\"disabled\":true}",
		"POST /orgs/extra/purge {}",
		"PATCH /orgs/acme {\"disabled\":true}",
	} {
		request, body, has := strings.Cut(line, " {")
		if has {
			body = "{" + body
		}
		method, path, _ := strings.Cut(request, " ")
		if w := d.send(method, path, body); w.Code >= http.StatusMultipleChoices {
			t.Errorf("%s: got status %d, %s", line, w.Code, w.Body)
		}
	}
}
