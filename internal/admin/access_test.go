package admin_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/auth/keys"
)

func TestKeysThatOpenTheAPI(t *testing.T) {
	d := deploy(t)
	for name, tc := range map[string]struct {
		key  string
		want int
	}{
		"an administrator's":       {opsKey, 200},
		"a read-only one's":        {viewerKey, 200},
		"a disabled one's":         {offKey, 401},
		"an expired one's":         {expiredKey, 401},
		"a caller's":               {callerKey, 401},
		"an unknown one":           {keys.New(keys.Admin), 401},
		"a mistyped one":           {opsKey[:len(opsKey)-1] + "~", 401},
		"none":                     {"", 401},
		"the id in place of a key": {"ops", 401},
	} {
		w := d.as(tc.key).send("GET", "/orgs", "")
		if w.Code != tc.want {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, tc.want)
		}
		if tc.want != 401 {
			continue
		}
		got := w.Header().Get("Www-Authenticate")
		if got != "Bearer" {
			t.Errorf("%s: got WWW-Authenticate %q, want Bearer", name, got)
		}
		if !strings.Contains(w.Body.String(), "invalid_api_key") || tc.key != "" &&
			strings.Contains(w.Body.String(), tc.key) {
			t.Errorf("%s: got %s, want invalid_api_key, and no key repeated", name, w.Body)
		}
	}
}

// Every refusal of a key reads the same, so that guessing yields no information.
func TestRefusedKeysReadTheSame(t *testing.T) {
	d := deploy(t)
	want := d.as(callerKey).send("GET", "/orgs", "").Body.String()
	for name, key := range map[string]string{
		"disabled": offKey, "expired": expiredKey, "unknown": keys.New(keys.Admin),
		"missing": "",
	} {
		got := d.as(key).send("GET", "/orgs", "").Body.String()
		if got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestAuthorizationHeader(t *testing.T) {
	d := deploy(t).as("")
	for _, tc := range []struct {
		values []string
		want   int
	}{
		{[]string{"Bearer " + opsKey}, 200},
		{[]string{"bearer " + opsKey}, 200},
		{[]string{"Bearer   " + opsKey + " "}, 200},
		{[]string{opsKey}, 401},
		{[]string{"Basic " + opsKey}, 401},
		{[]string{"Bearer " + opsKey, "Bearer " + opsKey}, 401},
		{[]string{"Bearer " + opsKey + ", Bearer " + opsKey}, 401},
	} {
		w := d.send("GET", "/self", "", func(r *http.Request) { r.Header["Authorization"] = tc.values })
		if w.Code != tc.want {
			t.Errorf("%.20q...: got %d, want %d", tc.values, w.Code, tc.want)
		}
	}
}

// routes returns all operations in the API's own OpenAPI document.
func (d *deployment) routes() map[string][]string {
	d.t.Helper()
	var doc struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	err := json.Unmarshal(d.send("GET", "/openapi.json", "").Body.Bytes(), &doc)
	if err != nil {
		d.t.Fatal(err)
	}
	concrete := strings.NewReplacer("{org}", "acme", "{user}", "alice", "{key}", "k1", "{limit}", "month", "{override}",
		"x",
		"{admin}", "ops", "{provider}", "openai", "{job}", "job_x", "{batch}", "batch_x", "{id}", "alice",
		"{run}", "run_x", "{request}", "request_x", "{pool}", "main", "limits/explain", "limits/explain?user=alice")
	out := map[string][]string{}
	for path, operations := range doc.Paths {
		for method := range operations {
			path := concrete.Replace(strings.TrimPrefix(path, "/admin/v1"))
			out[path] = append(out[path], strings.ToUpper(method))
		}
	}
	return out
}

// A read-only administrator reads everything and changes nothing.
func TestReadOnlyAdministrator(t *testing.T) {
	d := deploy(t)
	viewer, read, written := d.as(viewerKey), 0, 0
	for path, methods := range d.routes() {
		for _, method := range methods {
			switch {
			case method == "GET":
				read++
				w := viewer.send(method, path, "")
				missing := strings.HasPrefix(path, "/jobs/job_x") || strings.HasSuffix(path, "_x") // no such thing is there
				if w.Code != 200 && (!missing || w.Code != 404) {
					t.Errorf("GET %s: got %d %s, want 200", path, w.Code, w.Body)
				}
			case path == "/session": // every administrator may sign in
			case strings.HasPrefix(path, "/admins"):
				viewer.refused(403, "local_only", "", method, path, "{}")
			default:
				written++
				viewer.refused(403, "read_only", "", method, path, "{}")
			}
		}
	}
	if read < 14 || written < 18 {
		t.Errorf("got %d routes that read and %d that write, want at least 14 and 18", read, written)
	}
}

func TestRequestsOfOtherOrigins(t *testing.T) {
	d := deploy(t)
	for _, tc := range []struct {
		origin, site string
		want         int
	}{
		{"", "", 200},
		{"", "none", 200},
		{"", "same-origin", 200},
		{"http://example.com", "", 200}, // same host as the request
		{"http://example.com", "same-origin", 200},
		{"https://evil.example", "", 403},
		{"http://example.com:81", "", 403},
		{"null", "", 403},
		{"::", "", 403},
		{"", "cross-site", 403},
		{"", "same-site", 403},
		{"http://example.com", "cross-site", 403},
	} {
		w := d.send("GET", "/self", "", func(r *http.Request) {
			if tc.origin != "" {
				r.Header.Set("Origin", tc.origin)
			}
			if tc.site != "" {
				r.Header.Set("Sec-Fetch-Site", tc.site)
			}
		})
		if w.Code != tc.want || w.Code == 403 && !strings.Contains(w.Body.String(), "cross_origin") {
			t.Errorf("Origin %q, Sec-Fetch-Site %q: got %d %s, want %d", tc.origin, tc.site, w.Code, w.Body, tc.want)
		}
		got := w.Header().Get("Access-Control-Allow-Origin")
		if got != "" {
			t.Errorf("Origin %q: got Access-Control-Allow-Origin %q, want none", tc.origin, got)
		}
	}
}

// After twenty failures from an address, the right key still works from there, and other
// addresses are not affected.
func TestGuessingIsSlowedDown(t *testing.T) {
	d := deploy(t)
	stranger := d.as(callerKey)
	from := func(ip string) func(*http.Request) {
		return func(r *http.Request) { r.RemoteAddr = ip + ":1234" }
	}
	for n := range 20 {
		w := stranger.send("GET", "/orgs", "", from("10.0.0.1"))
		if w.Code != 401 {
			t.Fatalf("attempt %d: got %d, want 401", n+1, w.Code)
		}
	}
	w := stranger.send("GET", "/orgs", "", from("10.0.0.1"))
	if w.Code != 429 || w.Header().Get("Retry-After") == "" {
		t.Errorf("attempt 21: got %d, Retry-After %q, want 429 and a time", w.Code, w.Header().Get("Retry-After"))
	}
	w = stranger.send("GET", "/orgs", "", from("10.0.0.1"),
		func(r *http.Request) { r.Header.Set("X-Forwarded-For", "10.9.9.9") })
	if w.Code != 429 {
		t.Errorf("with another X-Forwarded-For: got %d, want 429: the header is not believed", w.Code)
	}
	w = d.send("GET", "/orgs", "", from("10.0.0.1"))
	if w.Code != 200 {
		t.Errorf("a right key from there: got %d, want 200", w.Code)
	}
	w = stranger.send("GET", "/orgs", "", from("10.0.0.2"))
	if w.Code != 401 {
		t.Errorf("another address: got %d, want 401", w.Code)
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	d := deploy(t)
	d.refused(404, "unknown_url", "", "GET", "/nothing", "")
	d.refused(404, "unknown_url", "", "GET", "/orgs/acme/nothing", "")
	for path, allow := range map[string]string{
		"/orgs": "GET, POST", "/orgs/acme": "GET, PATCH, DELETE", "/orgs/acme/limits/month": "PATCH, DELETE", "/audit": "GET",
		"/config/reload": "POST", "/orgs/acme/credentials/openai": "PUT, DELETE",
	} {
		w := d.send("TRACE", path, "")
		if w.Code != 405 || w.Header().Get("Allow") != allow || !strings.Contains(w.Body.String(), "method_not_allowed") {
			t.Errorf("TRACE %s: got %d, Allow %q: %s; want 405, %q", path, w.Code, w.Header().Get("Allow"), w.Body, allow)
		}
	}
	w := d.as("").send("GET", "/nothing", "")
	if w.Code != 401 {
		t.Errorf("an unknown path without a key: got %d, want 401: strangers learn no paths", w.Code)
	}
}

func TestHeadersOfEveryAnswer(t *testing.T) {
	d := deploy(t)
	seen := map[string]bool{}
	for _, key := range []string{opsKey, viewerKey, offKey} {
		for _, method := range []string{"GET", "DELETE", "PUT"} {
			w := d.as(key).send(method, "/orgs/acme", "")
			h := w.Header()
			if h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" ||
				h.Get("Content-Type") != "application/json" {
				t.Errorf("%s, status %d: got the headers %v", method, w.Code, h)
			}
			id := h.Get("X-Request-Id")
			if id == "" || seen[id] {
				t.Errorf("%s, status %d: got X-Request-Id %q, want a new one", method, w.Code, id)
			}
			seen[id] = true
		}
	}
}
