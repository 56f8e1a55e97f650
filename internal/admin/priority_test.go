package admin_test

import (
	"strings"
	"testing"
)

// Priorities of users and keys are changed within the org's max_priority.
func TestPriorities(t *testing.T) {
	d := deploy(t)
	refused := func(method, path, body, want string) {
		t.Helper()
		a := d.send(method, path, body)
		if a.Code != 400 || !strings.Contains(a.Body.String(), want) {
			t.Errorf("%s %s %s: got %d, %s; want 400 and %q", method, path, body, a.Code, a.Body, want)
		}
	}
	const above = "above the org's max_priority, normal"
	refused("PATCH", "/orgs/acme/users/bob", `{"priority":"high"}`, above)
	refused("POST", "/orgs/acme/keys", `{"id":"b1","user":"bob","priority":"high"}`, above)
	refused("PATCH", "/orgs/acme/users/bob", `{"priority":"urgent"}`, "priority")
	d.expect(200, "PATCH", "/orgs/acme", `{"max_priority":"high"}`, `{"max_priority":"high"}`)
	d.expect(200, "PATCH", "/orgs/acme/users/bob", `{"priority":"high"}`, `{"priority":"high"}`)
	d.expect(201, "POST", "/orgs/acme/keys", `{"id":"b1","user":"bob","priority":"low"}`, `{"priority":"low"}`)
	refused("PATCH", "/orgs/acme", `{"max_priority":"normal"}`, above)
	d.expect(200, "PATCH", "/orgs/acme/users/bob", `{"priority":null}`, `{"priority":""}`)
	d.expect(200, "PATCH", "/orgs/acme", `{"max_priority":"normal"}`, `{"max_priority":"normal"}`)
}
