package admin_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestBodiesThatAreRefused(t *testing.T) {
	d := deploy(t)
	for _, tc := range []struct {
		body, code, param string
	}{
		{`{"id":"globex","modles":["gpt-*"]}`, "unknown_field", "modles"},
		{`{"id":"globex","Name":"Globex"}`, "unknown_field", "Name"},
		{`{"id":"globex","name":7}`, "invalid_value", "name"},
		{`{"id":"globex","models":"gpt-*"}`, "invalid_value", "models"},
		{`{"id":"globex","models":["gpt-*",7]}`, "invalid_value", "models/1"},
		{`{"id":"globex","weight":"much"}`, "invalid_value", "weight"},
		{`["globex"]`, "invalid_value", ""},
		{`"globex"`, "invalid_value", ""},
		{`{"id":"globex"`, "invalid_json", ""},
		{`{"id":"globex"} {"id":"other"}`, "invalid_json", ""},
		{`{"id":"globex","id":"other"}`, "invalid_json", ""},
		{`{"id":'globex'}`, "invalid_json", ""},
		{"{\"id\":\"globex\",\"name\":\"\xff\"}", "invalid_json", ""},
		{`{}`, "invalid_value", "id"},
		{` `, "invalid_value", "id"},
	} {
		d.refused(400, tc.code, tc.param, "POST", "/orgs", tc.body)
	}
	got := d.names("/orgs", "id")
	if got != "acme" {
		t.Errorf("got the orgs %q, want acme alone", got)
	}
}

func TestPatchesThatAreRefused(t *testing.T) {
	d := deploy(t)
	for _, tc := range []struct {
		path, body, code, param string
	}{
		{"/orgs/acme", `{"weigth":1}`, "unknown_field", "weigth"},
		{"/orgs/acme", `{"weigth":null}`, "unknown_field", "weigth"},
		{"/orgs/acme", `{"id":"other"}`, "unknown_field", "id"},
		{"/orgs/acme", `{"weight":1,"weight":2}`, "invalid_json", ""},
		{"/orgs/acme", `[]`, "invalid_value", ""},
		{"/orgs/acme/users/alice", `{"keys":[]}`, "unknown_field", "keys"},
		{"/orgs/acme/keys/k1", `{"hash":"sha256:00"}`, "unknown_field", "hash"},
		{"/orgs/acme/keys/k1", `{"user":"bob"}`, "unknown_field", "user"},
		{"/orgs/acme/limits/month", `{"bucket":{"capcity":"$5"}}`, "unknown_field", "bucket/capcity"},
		{"/orgs/acme/limits/month", `{"name":"other"}`, "unknown_field", "name"},
	} {
		d.refused(400, tc.code, tc.param, "PATCH", tc.path, tc.body)
	}
}

// Bodies of the wrong media type are rejected before anything is looked up.
func TestMediaTypes(t *testing.T) {
	d := deploy(t)
	for _, tc := range []struct {
		kind string
		want int
	}{
		{"application/json", 200},
		{"application/json; charset=utf-8", 200},
		{"application/merge-patch+json", 200},
		{"text/plain", 415},
		{"application/x-www-form-urlencoded", 415},
		{"multipart/form-data", 415},
		{"", 415},
		{"application/json;;", 415},
	} {
		w := d.send("PATCH", "/orgs/acme", `{"name":"Acme"}`, func(r *http.Request) { r.Header.Set("Content-Type", tc.kind) })
		if w.Code != tc.want || w.Code == 415 && !strings.Contains(w.Body.String(), "unsupported_media_type") {
			t.Errorf("Content-Type %q: got %d %s, want %d", tc.kind, w.Code, w.Body, tc.want)
		}
	}
}

func TestBodySize(t *testing.T) {
	d := deploy(t)
	name := func(n int) string { return `{"name":"` + strings.Repeat("a", n) + `"}` }
	w := d.send("PATCH", "/orgs/acme", name(1<<20))
	if w.Code != 413 {
		t.Errorf("a body above 1 MiB: got %d %.200s, want 413", w.Code, w.Body)
	}
	d.expect(200, "PATCH", "/orgs/acme", name(1000), "")
	if d.changes() != 1 {
		t.Errorf("got %d changes, want the one of the small body", d.changes())
	}
}

// A truncated body changes nothing.
func TestBodyThatEndsEarly(t *testing.T) {
	d := deploy(t)
	w := d.send("PATCH", "/orgs/acme", `{"name":"x"}`, func(r *http.Request) { r.Body = http.NoBody })
	if w.Code != 200 || d.changes() != 1 {
		t.Errorf("an empty body: got %d %s, want 200: it changes no field", w.Code, w.Body)
	}
	w = d.send("PATCH", "/orgs/acme", `{"name":"x"}`, func(r *http.Request) { r.Body = broken{} })
	if w.Code != 400 || !strings.Contains(w.Body.String(), "body_unreadable") || d.changes() != 1 {
		t.Errorf("a body that breaks off: got %d %s, want 400 body_unreadable", w.Code, w.Body)
	}
}

// broken is the body of a client that disconnects.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, http.ErrAbortHandler }
func (broken) Close() error             { return nil }

// A reason may come in the query, must be one line, and is limited in length.
func TestReasonOfAChange(t *testing.T) {
	d := deploy(t)
	d.expect(200, "PATCH", "/orgs/acme?reason=because+of+%C3%BC", `{"name":"A"}`, "")
	d.audited(`{"reason":"because of ü"}`, "", `{"name":"A"}`)
	d.expect(200, "PATCH", "/orgs/acme?reason="+strings.Repeat("a", 1000), `{"name":"B"}`, "")
	for name, reason := range map[string]string{
		"too long": strings.Repeat("a", 1001), "two lines": "a%0Ab", "a control character": "a%1Bb", "not UTF-8": "%FF",
	} {
		message := d.refused(400, "invalid_value", "reason", "PATCH", "/orgs/acme?reason="+reason, `{"name":"C"}`)
		if !strings.Contains(message, "one line") {
			t.Errorf("%s: got the message %q, want the rule", name, message)
		}
	}
	d.expect(200, "GET", "/orgs/acme", "", `{"name":"B"}`)
}
