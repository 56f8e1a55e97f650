package app

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/keys"
)

// operator asks the admin listener of an app.
type operator struct {
	t        *testing.T
	url, key string
}

// operator makes an administrator's key where the configuration is at hand.
func (r *running) operator(t *testing.T) *operator {
	t.Helper()
	api, err := Admin(t.Context(), r.cfg, r.rdb, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	req := httptest.NewRequest("POST", "/admin/v1/admins", strings.NewReader(`{"id":"ops"}`))
	req.Header.Set("Content-Type", "application/json")
	api.As("test").ServeHTTP(w, req)
	var made struct{ Secret string }
	if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code != 201 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return &operator{t: t, url: r.AdminURL() + "/admin/v1", key: made.Secret}
}

// ask sends a request, wants a status, and decodes the answer into out.
func (o *operator) ask(want int, method, path, body string, out any) string {
	o.t.Helper()
	req, err := http.NewRequestWithContext(o.t.Context(), method, o.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+o.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		o.t.Fatalf("%s %s: %d %s, %v; want %d", method, path, resp.StatusCode, text, err, want)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			o.t.Fatal(err)
		}
	}
	return string(text)
}

// models asks for the models with a key, and returns the status.
func (r *running) models(t *testing.T, key string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", r.URL()+"/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestIdentitiesLive: what an administrator makes and changes holds at once in the
// process that was asked.
func TestIdentitiesLive(t *testing.T) {
	r := start(t, Proxy|Worker, "")
	o := r.operator(t)
	o.ask(201, "POST", "/orgs", `{"id":"globex","name":"Globex"}`, nil)
	o.ask(409, "POST", "/orgs", `{"id":"globex"}`, nil)
	o.ask(201, "POST", "/orgs/globex/users", `{"id":"gus"}`, nil)
	var key struct{ ID, Secret, Status string }
	o.ask(201, "POST", "/orgs/globex/keys", `{"user":"gus"}`, &key)
	if class, err := keys.Check(key.Secret); err != nil || class != keys.Live {
		t.Fatalf("the key: %v %v", class, err)
	}
	is := func(want int, text string) {
		t.Helper()
		if got := r.models(t, text); got != want {
			t.Fatalf("the key answers %d, want %d", got, want)
		}
	}
	is(200, key.Secret)
	o.ask(200, "PATCH", "/orgs/globex/keys/"+key.ID, `{"disabled":true}`, nil)
	is(401, key.Secret)
	o.ask(200, "PATCH", "/orgs/globex/keys/"+key.ID, `{"disabled":null}`, nil)
	is(200, key.Secret)
	var rotated struct{ Secret string }
	o.ask(200, "POST", "/orgs/globex/keys/"+key.ID+"/rotate", `{"overlap":"1h"}`, &rotated)
	is(200, key.Secret)
	is(200, rotated.Secret)
	o.ask(200, "PATCH", "/orgs/globex", `{"disabled":true}`, nil)
	is(401, rotated.Secret)
	o.ask(200, "PATCH", "/orgs/globex", `{"disabled":false}`, nil)
	old := rotated.Secret
	o.ask(200, "POST", "/orgs/globex/keys/"+key.ID+"/rotate", `{"overlap":"0s"}`, &rotated)
	is(401, old)
	is(200, rotated.Secret)
	o.ask(204, "DELETE", "/orgs/globex/users/gus", "", nil)
	is(401, rotated.Secret)

	// What the file declares is changed, not removed, and comes back.
	is(200, r.key)
	o.ask(409, "DELETE", "/orgs/acme/keys/k1", "", nil)
	o.ask(200, "PATCH", "/orgs/acme/users/alice", `{"disabled":true}`, nil)
	is(401, r.key)
	o.ask(204, "DELETE", "/orgs/acme/users/alice", "", nil)
	is(200, r.key)
	o.ask(200, "POST", "/orgs/acme/keys/k1/rotate", `{"overlap":"0s"}`, &rotated)
	is(401, r.key)
	is(200, rotated.Secret)
	o.ask(204, "DELETE", "/orgs/acme/keys/k1", "", nil)
	is(200, r.key)
}
