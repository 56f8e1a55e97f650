package front_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/front"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/redistest"
)

// door sends requests to the admin handler, each from another address, so that none is
// refused because of earlier attempts.
type door struct {
	t       *testing.T
	handler http.Handler
	secrets []string // which no answer may contain
	sent    int
}

func (r *running) door(t *testing.T, o *operator) *door {
	t.Helper()
	mux := http.NewServeMux()
	r.front.Operators(mux)
	return &door{t: t, handler: mux, secrets: []string{o.key, r.key}}
}

// refuses sends a request and requires an error's status and code.
func (d *door) refuses(want int, code string, op operation, change func(*http.Request)) {
	d.t.Helper()
	d.sent++
	req := httptest.NewRequest(op.method, op.path, strings.NewReader("{}"))
	req.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1", d.sent/250, d.sent%250+1)
	req.Header.Set("Content-Type", "application/json")
	change(req)
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, req)
	var e struct{ Error struct{ Code string } }
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
			d.t.Errorf("%s: got %q, want JSON", op, w.Body)
		}
	}
	if w.Code != want || e.Error.Code != code {
		d.t.Errorf("%s: got status %d, %s; want %d, %s", op, w.Code, w.Body, want, code)
	}
	for _, secret := range d.secrets {
		if strings.Contains(w.Body.String(), secret) {
			d.t.Errorf("%s: the answer contains a key: %s", op, w.Body)
		}
	}
	if got := w.Header().Get("Access-Control-Allow-Origin"); got != "" {
		d.t.Errorf("%s: got Access-Control-Allow-Origin %q, want none", op, got)
	}
}

// status sends a GET from one address with a key.
func (d *door) status(key string) int {
	req := httptest.NewRequest(http.MethodGet, "/admin/v1/orgs", nil)
	bearer(key)(req)
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, req)
	return w.Code
}

// operation is a method and a path of the API.
type operation struct{ method, path string }

func (op operation) String() string { return op.method + " " + op.path }

// writes reports whether the operation changes something.
func (op operation) writes() bool { return op.method != http.MethodGet }

// operations lists those of the OpenAPI document, with ids filled in.
func (o *operator) operations() (out []operation) {
	o.t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	o.ask(200, "GET", "/openapi.json", "", &doc)
	ids := strings.NewReplacer("{org}", "acme", "{user}", "alice", "{key}", "k1", "{limit}", "w",
		"{override}", "x", "{admin}", "ops", "{provider}", "openai")
	for path, methods := range doc.Paths {
		for method := range methods {
			out = append(out, operation{strings.ToUpper(method), ids.Replace(path)})
		}
	}
	if len(out) < 25 {
		o.t.Fatalf("the document has %d operations, want at least 25", len(out))
	}
	return out
}

// bearer sets the key of a request.
func bearer(key string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+key) }
}

func unchanged(*http.Request) {}

// TestAdminNeedsKey checks that no operation runs without an administrator's key in the
// proper header.
func TestAdminNeedsKey(t *testing.T) {
	r := start(t, app.Proxy, "")
	o := r.operator(t)
	d := r.door(t, o)
	wrong := map[string]func(*http.Request){
		"none":         unchanged,
		"a caller's":   bearer(r.key),
		"cut short":    bearer(o.key[:len(o.key)-1]),
		"empty":        bearer(""),
		"basic":        func(r *http.Request) { r.Header.Set("Authorization", "Basic "+o.key) },
		"other header": func(r *http.Request) { r.Header.Set("Api-Key", o.key) },
		"cookie":       func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "key", Value: o.key}) },
		"query":        func(r *http.Request) { r.URL.RawQuery = "key=" + o.key + "&api_key=" + o.key },
		"twice": func(r *http.Request) {
			r.Header["Authorization"] = []string{"Bearer " + o.key, "Bearer " + o.key}
		},
	}
	list := append(o.operations(), operation{"GET", "/admin/v1/nothing"})
	for name, change := range wrong {
		t.Run(name, func(t *testing.T) {
			api, err := front.Admin(t.Context(), r.Config(), redistest.DB(r.rdb), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			// Failures are limited across all addresses, so each case has its
			// own API.
			d := &door{t: t, handler: api, secrets: d.secrets}
			for _, op := range list {
				d.refuses(401, "invalid_api_key", op, change)
			}
		})
	}
	for _, op := range list[:3] { // each looks for a newer key in Redis, at most ten times a second
		d.refuses(401, "invalid_api_key", op, bearer(keys.New(keys.Admin)))
	}
}

// TestAdminRefusesBrowsers checks that a page of another site cannot use an administrator's
// browser.
func TestAdminRefusesBrowsers(t *testing.T) {
	r := start(t, app.Proxy, "")
	o := r.operator(t)
	d := r.door(t, o)
	for _, header := range [][2]string{
		{"Origin", "https://evil.example"},
		{"Origin", "null"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
	} {
		for _, op := range o.operations() {
			d.refuses(403, "cross_origin", op, func(r *http.Request) {
				bearer(o.key)(r)
				r.Header.Set(header[0], header[1])
			})
		}
	}
}

// TestAdminWrites checks that operations that change something need JSON and a key that may
// write, and that administrators can be changed only on the machine with the configuration.
func TestAdminWrites(t *testing.T) {
	r := start(t, app.Proxy, "")
	o := r.operator(t)
	d := r.door(t, o)
	viewer := r.newAdminKey(t, `{"id":"viewer","read_only":true}`)
	for _, op := range o.operations() {
		switch {
		case !op.writes(), op.path == "/admin/v1/session": // signing in needs only read access
			continue
		case strings.HasPrefix(op.path, "/admin/v1/admins"):
			d.refuses(403, "local_only", op, bearer(o.key))
			continue
		}
		d.refuses(403, "read_only", op, bearer(viewer))
		bodyless := strings.HasPrefix(op.path, "/admin/v1/config/reload") || strings.HasSuffix(op.path, "/runs/{run}/end")
		if op.method == http.MethodDelete || bodyless {
			continue
		}
		d.refuses(415, "unsupported_media_type", op, func(r *http.Request) {
			bearer(o.key)(r)
			r.Header.Set("Content-Type", "text/plain")
		})
	}
}

// TestAdminRoutes checks that unknown routes are refused after the key was checked.
func TestAdminRoutes(t *testing.T) {
	r := start(t, app.Proxy, "")
	o := r.operator(t)
	d := r.door(t, o)
	d.refuses(404, "unknown_url", operation{"GET", "/admin/v1/nothing"}, bearer(o.key))
	d.refuses(405, "method_not_allowed", operation{"PUT", "/admin/v1/orgs"}, bearer(o.key))
}

// TestAdminAndCallersApart checks that an administrator's key cannot make calls, and that
// the callers' listener does not serve the API.
func TestAdminAndCallersApart(t *testing.T) {
	r := start(t, app.Proxy, "")
	o := r.operator(t)
	viewer := r.newAdminKey(t, `{"id":"viewer","read_only":true}`)
	for _, key := range []string{o.key, viewer} {
		r.keyAnswers(t, 401, key)
		if got := get(t, r.URL()+"/admin/v1/orgs", key).status; got != 404 && got != 401 {
			t.Errorf("the API at the callers' listener: got status %d, want 401 or 404", got)
		}
	}
}

// TestAdminGuessing checks that an address that guesses keys is rate-limited, and that a
// valid key from the same address still works.
func TestAdminGuessing(t *testing.T) {
	r := start(t, app.Proxy, "")
	o := r.operator(t)
	d := r.door(t, o)
	last := 0
	for tries := 0; tries < 30 && last != 429; tries++ {
		last = d.status(r.key)
	}
	if last != 429 {
		t.Errorf("up to 30 wrong keys: got status %d, want 429", last)
	}
	if got := d.status(o.key); got != 200 {
		t.Errorf("a right key from the same address: got status %d, want 200", got)
	}
}

// TestOverrideInAnswers checks that callers see a limit as an override has changed it, and until when.
func TestOverrideInAnswers(t *testing.T) {
	r := start(t, app.Proxy, "")
	o := r.operator(t)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	o.ask(201, "POST", "/orgs/acme/overrides", fmt.Sprintf(`{"limit":"w","add":"$200","until":"%s","reason":"launch"}`, until), nil)
	got, err := r.chat(r.key, small)
	limits := got.header.Get("X-Llmguard-Limits")
	if err != nil || !strings.Contains(limits, "w;metric=cost;limit=1200.000000000;") || !strings.Contains(limits, "override_until="+until) {
		t.Errorf("got %d, %v and the limits %q, want w of $1200 until %s", got.status, err, limits, until)
	}
}
