package front_test

import (
	"testing"

	"github.com/llmguard/llmguard/internal/app"

	"github.com/llmguard/llmguard/internal/auth/keys"
)

// keyAnswers requires the status that a caller's key gets.
func (r *running) keyAnswers(t *testing.T, want int, key string) {
	t.Helper()
	if got := get(t, r.URL()+"/v1/models", key); got.status != want {
		t.Fatalf("the key gets %d, want %d", got.status, want)
	}
}

// TestIdentitiesLive checks that what an administrator creates and changes takes effect
// immediately in the process that handled the request.
func TestIdentitiesLive(t *testing.T) {
	r := start(t, app.Proxy|app.Worker, "")
	o := r.operator(t)
	o.ask(201, "POST", "/orgs", `{"id":"globex","name":"Globex"}`, nil)
	o.ask(409, "POST", "/orgs", `{"id":"globex"}`, nil)
	o.ask(201, "POST", "/orgs/globex/users", `{"id":"gus"}`, nil)
	var key struct{ ID, Secret, Status string }
	o.ask(201, "POST", "/orgs/globex/keys", `{"user":"gus"}`, &key)
	if class, err := keys.Check(key.Secret); err != nil || class != keys.Live {
		t.Fatalf("the new key has class %v, %v; want %v", class, err, keys.Live)
	}
	r.keyAnswers(t, 200, key.Secret)
	path := "/orgs/globex/keys/" + key.ID
	o.ask(200, "PATCH", path, `{"disabled":true}`, nil)
	r.keyAnswers(t, 401, key.Secret)
	o.ask(200, "PATCH", path, `{"disabled":null}`, nil)
	r.keyAnswers(t, 200, key.Secret)
	var rotated struct{ Secret string }
	o.ask(200, "POST", path+"/rotate", `{"overlap":"1h"}`, &rotated)
	r.keyAnswers(t, 200, key.Secret)
	r.keyAnswers(t, 200, rotated.Secret)
	o.ask(200, "PATCH", "/orgs/globex", `{"disabled":true}`, nil)
	r.keyAnswers(t, 401, rotated.Secret)
	o.ask(200, "PATCH", "/orgs/globex", `{"disabled":false}`, nil)
	old := rotated.Secret
	o.ask(200, "POST", path+"/rotate", `{"overlap":"0s"}`, &rotated)
	r.keyAnswers(t, 401, old)
	r.keyAnswers(t, 200, rotated.Secret)
	o.ask(204, "DELETE", "/orgs/globex/users/gus", "", nil)
	r.keyAnswers(t, 401, rotated.Secret)
}

// TestDeclaredIdentities checks that what the file declares can be changed but not removed,
// and reverts to the file when the change is deleted.
func TestDeclaredIdentities(t *testing.T) {
	r := start(t, app.Proxy, "")
	o := r.operator(t)
	r.keyAnswers(t, 200, r.key)
	o.ask(409, "DELETE", "/orgs/acme/keys/k1", "", nil)
	o.ask(200, "PATCH", "/orgs/acme/users/alice", `{"disabled":true}`, nil)
	r.keyAnswers(t, 401, r.key)
	o.ask(204, "DELETE", "/orgs/acme/users/alice", "", nil)
	r.keyAnswers(t, 200, r.key)
	var rotated struct{ Secret string }
	o.ask(200, "POST", "/orgs/acme/keys/k1/rotate", `{"overlap":"0s"}`, &rotated)
	r.keyAnswers(t, 401, r.key)
	r.keyAnswers(t, 200, rotated.Secret)
	o.ask(204, "DELETE", "/orgs/acme/keys/k1", "", nil)
	r.keyAnswers(t, 200, r.key)
}
