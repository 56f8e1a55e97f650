package admin_test

import (
	"net/http"
	"strings"
	"testing"
)

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

// A truncated body changes nothing, and neither does one that is not UTF-8.
func TestBodyThatEndsEarly(t *testing.T) {
	d := deploy(t)
	w := d.send("PATCH", "/orgs/acme", `{"name":"x"}`, func(r *http.Request) { r.Body = http.NoBody })
	if w.Code != 200 || d.changes() != 1 {
		t.Errorf("an empty body: got %d %s, want 200: it changes no field", w.Code, w.Body)
	}
	d.refused(400, "invalid_json", "", "PATCH", "/orgs/acme", "{\"name\":\"\xff\"}")
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
