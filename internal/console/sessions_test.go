package console_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/tenants"
)

// paths are all pages, with valid ids.
var paths = []string{
	"/console/", "/console/orgs/acme", "/console/orgs/acme/what-if", "/console/orgs/acme/users/alice", "/console/queue",
	"/console/jobs",
	"/console/jobs?org=acme&user=alice", "/console/jobs/acme/job_1", "/console/batches",
	"/console/batches/acme/alice/batch_1", "/console/audit",
}

// A page requires signing in, which leads back to the page.
func TestPagesNeedASession(t *testing.T) {
	b := newRig(t, acme).browser()
	for _, path := range paths {
		a := b.do("GET", path, nil)
		want := "/console/login?next=" + url.QueryEscape(path)
		if a.status != http.StatusSeeOther || a.header.Get("Location") != want {
			t.Errorf("%s: got %d to %q, want 303 to %q", path, a.status, a.header.Get("Location"), want)
		}
		if strings.Contains(a.text, "<main") {
			t.Errorf("%s shows a stranger a page: %s", path, a.text)
		}
	}
	for _, path := range []string{"/console/act/cancel-job", "/console/logout"} {
		a := b.post(path, url.Values{"org": {"acme"}})
		if a.status != http.StatusSeeOther || a.header.Get("Location") != "/console/login?" {
			t.Errorf("POST %s: got %d to %q, want 303 to sign in", path, a.status, a.header.Get("Location"))
		}
	}
	a := b.do("GET", "/console/", nil, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+opsKey) })
	if a.status != http.StatusSeeOther {
		t.Errorf("with a key in a header: got %d, want 303: pages know sessions alone", a.status)
	}
}

func TestSignIn(t *testing.T) {
	r := newRig(t, acme)
	a := r.browser().post("/console/login", url.Values{"key": {"  " + opsKey + " \n"}, "next": {"/console/queue?x=1"}})
	if a.status != http.StatusSeeOther || a.header.Get("Location") != "/console/queue?x=1" {
		t.Errorf("got %d to %q, want 303 to where one wanted to go", a.status, a.header.Get("Location"))
	}
	cookie := a.header.Get("Set-Cookie")
	for _, want := range []string{"llmguard_console=", "Path=/console/", "HttpOnly", "SameSite=Strict", "Max-Age=43200"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("got the cookie %q, want %s", cookie, want)
		}
	}
	if strings.Contains(cookie, opsKey) || strings.Contains(cookie, "Secure") {
		t.Errorf("got the cookie %q, want neither the key, nor Secure without TLS", cookie)
	}
	text := r.browser().do("GET", "/console/login?next=/console/audit", nil).text
	if !strings.Contains(text, `name="next" value="/console/audit"`) {
		t.Errorf("got the page %s, want it to remember the page", content(text))
	}
}

// Who frees memory has to sign in: that works with no memory left in Redis.
func TestSignInWithFullMemory(t *testing.T) {
	r := newRig(t, acme)
	r.must(r.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	defer func() { r.must(r.rdb.ConfigSet(context.Background(), "maxmemory", "0").Err()) }()
	b := r.signedIn(opsKey)
	b.has("/console/", "Acme")
	if a := b.act("reset-limit", true, "org", "acme", "limit", "month", "reason", "x"); a.status != http.StatusSeeOther {
		t.Errorf("reset: got %d %s", a.status, content(a.text))
	}
}

func TestSignInIsRefused(t *testing.T) {
	r := newRig(t, acme)
	for name, key := range map[string]string{
		"none": "", "nonsense": "<b>nonsense</b>", "a caller's": callerKey, "an unknown one": keys.New(keys.Admin),
		"cut off": opsKey[:len(opsKey)-1],
	} {
		a := r.browser().post("/console/login", url.Values{"key": {key}})
		if a.status != http.StatusUnauthorized || a.header.Get("Set-Cookie") != "" ||
			!strings.Contains(a.text, `role="alert"`) {
			t.Errorf("%s: got %d, the cookie %q and %s; want 401, none and a message", name, a.status,
				a.header.Get("Set-Cookie"), content(a.text))
		}
		if key != "" && strings.Contains(a.text, key) {
			t.Errorf("%s: got the key in the page", name)
		}
	}
	big := r.browser().post("/console/login", url.Values{"key": {opsKey}, "next": {strings.Repeat("a", 5000)}})
	if big.status == http.StatusSeeOther {
		t.Errorf("a form above its bound: got %d, want it refused", big.status)
	}
}

// Wrong keys are rate-limited by address, as at the API.
func TestGuessingIsSlowedDown(t *testing.T) {
	r, last := newRig(t, acme), answer{}
	for range 21 {
		last = r.browser().post("/console/login", url.Values{"key": {callerKey}})
	}
	if last.status != http.StatusTooManyRequests {
		t.Errorf("the last of 21: got %d, want 429", last.status)
	}
	r.signedIn(opsKey) // a right key is not locked out
}

// Whatever a request says, the console redirects only to itself.
func TestWhereSigningInLeads(t *testing.T) {
	r := newRig(t, acme)
	for next, want := range map[string]string{
		"/console/audit?org=acme": "/console/audit?org=acme",
		"":                        "/console/", "/": "/console/", "/admin/v1/orgs": "/console/", "/consolex/": "/console/",
		"https://evil.example/console/": "/console/", "//evil.example/console/": "/console/", "/\\evil.example": "/console/",
		"javascript:alert(1)": "/console/", "http:/console/": "/console/", "/console/\\..\\x": "/console/", "%": "/console/",
		"https:///console/": "/console/",
	} {
		a := r.browser().post("/console/login", url.Values{"key": {opsKey}, "next": {next}})
		got := a.header.Get("Location")
		if got != want {
			t.Errorf("next %q: got %q, want %q", next, got, want)
		}
	}
}

// A form sent by another site signs nobody in, even with the browser's cookie.
func TestFormsOfOtherSites(t *testing.T) {
	r := newRig(t, acme)
	b := r.signedIn(opsKey)
	token := b.token()
	for _, header := range [][2]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {
			"Origin",
			"null",
		},
	} {
		foreign := func(r *http.Request) { r.Header.Set(header[0], header[1]) }
		a := r.browser().post("/console/login", url.Values{"key": {opsKey}}, foreign)
		if a.status != http.StatusForbidden || a.header.Get("Set-Cookie") != "" {
			t.Errorf("%v: signing in got %d, want 403", header, a.status)
		}
		a = b.post("/console/logout", url.Values{"token": {token}}, foreign)
		if a.status != http.StatusForbidden {
			t.Errorf("%v: signing out got %d, want 403", header, a.status)
		}
	}
	own := func(q *http.Request) {
		q.Header.Set("Origin", r.site.URL)
		q.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	a := b.post("/console/logout", url.Values{"token": {token}}, own)
	if a.status != http.StatusSeeOther {
		t.Errorf("from the console itself: got %d, want 303", a.status)
	}
}

// Signing out ends the session itself, not only the browser's cookie.
func TestSignOut(t *testing.T) {
	r := newRig(t, acme)
	b, other := r.signedIn(opsKey), r.signedIn(opsKey)
	site, _ := url.Parse(r.site.URL + "/console/")
	cookies := b.Jar.Cookies(site)
	a := b.post("/console/logout", url.Values{"token": {b.token()}})
	if a.status != http.StatusSeeOther || a.header.Get("Location") != "/console/login" ||
		!strings.Contains(a.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("got %d to %q, the cookie %q; want 303 to sign in and no cookie", a.status, a.header.Get("Location"),
			a.header.Get("Set-Cookie"))
	}
	b.Jar.SetCookies(site, cookies) // a copy of the cookie
	a = b.do("GET", "/console/", nil)
	if a.status != http.StatusSeeOther {
		t.Errorf("with a copy of the cookie: got %d, want 303", a.status)
	}
	other.page("/console/audit")
}

func TestHowLongSessionsLast(t *testing.T) {
	for name, tc := range map[string]struct {
		step  time.Duration
		steps int
		live  bool // set by pages that refresh themselves
		want  int
	}{
		"unused for less than an hour":    {59 * time.Minute, 1, false, 200},
		"unused for more than an hour":    {61 * time.Minute, 1, false, 303},
		"used for less than twelve hours": {50 * time.Minute, 14, false, 200},
		"used for more than twelve hours": {50 * time.Minute, 15, false, 303},
		"a page left open":                {20 * time.Minute, 4, true, 303},
	} {
		r := newRig(t, acme)
		b := r.signedIn(opsKey)
		b.live = tc.live
		last := answer{}
		for range tc.steps {
			r.later(tc.step)
			last = b.do("GET", "/console/audit", nil)
		}
		if last.status != tc.want {
			t.Errorf("%s: got %d, want %d", name, last.status, tc.want)
		}
	}
}

// TestSessionsEndWithTheirAdministrator: a disabled administrator is signed out on the next
// page, even while the API rate-limits the address.
func TestSessionsEndWithTheirAdministrator(t *testing.T) {
	r := newRig(t, acme)
	b := r.signedIn(viewerKey)
	r.record(tenants.Ref{Kind: tenants.KindAdmin, ID: "viewer"},
		tenants.Admin{Hash: keys.Hash(keys.Pepper{}, viewerKey), Disabled: true})
	for range 20 { // an unknown key makes the API look for changes, and many of them block the address
		r.browser().post("/console/login", url.Values{"key": {keys.New(keys.Admin)}})
	}
	a := b.do("GET", "/console/audit", nil)
	if a.status != http.StatusSeeOther || !strings.Contains(a.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("got %d, the cookie %q, want 303 and no cookie", a.status, a.header.Get("Set-Cookie"))
	}
	r.signedIn(opsKey).page("/console/audit")
}

// If there are too many sessions, the one unused for longest ends.
func TestTooManySessions(t *testing.T) {
	r := newRig(t, acme)
	first := r.signedIn(opsKey)
	r.later(time.Second)
	second := r.signedIn(opsKey)
	r.later(time.Second)
	for range 999 {
		r.signedIn(opsKey)
	}
	a := first.do("GET", "/console/audit", nil)
	if a.status != http.StatusSeeOther {
		t.Errorf("the first of 1001: got %d, want 303", a.status)
	}
	second.page("/console/audit")
}

// Sessions are random and independent: each has its own token.
func TestTokensDiffer(t *testing.T) {
	r := newRig(t, acme)
	a, b := r.signedIn(opsKey), r.signedIn(opsKey)
	if a.token() == b.token() || len(a.token()) < 20 {
		t.Errorf("got the tokens %q and %q, want two long ones", a.token(), b.token())
	}
	got := b.post("/console/logout", url.Values{"token": {a.token()}})
	if got.status != http.StatusForbidden {
		t.Errorf("with the token of another session: got %d, want 403", got.status)
	}
}

// A session is shared by all proxies: signing in and out applies to all of them, and Redis
// alone reveals neither the key nor the cookie.
func TestSessionsOfTwoProxies(t *testing.T) {
	r := newRig(t, acme)
	first := r.site
	b := r.signedIn(opsKey)
	token := b.token()
	second := r.another()
	if got := b.token(); got != token {
		t.Errorf("forms of the second proxy carry %q, those of the first %q", got, token)
	}
	cookie := b.Jar.Cookies(mustURL(t, second.URL+"/console/"))[0].Value
	for _, key := range r.rdb.Keys(t.Context(), "lg:{console:}:*").Val() {
		text := key + r.rdb.Get(t.Context(), key).Val()
		if strings.Contains(text, opsKey) || strings.Contains(text, cookie) || strings.Contains(text, token) {
			t.Errorf("Redis has a secret in the clear: %q", text)
		}
	}
	r.later(50 * time.Minute)
	b.page("/console/") // used at the second proxy
	r.site = first
	r.later(50 * time.Minute)
	b.page("/console/") // still valid at the first
	r.site = second
	if a := b.post("/console/logout", url.Values{"token": {token}}); a.status != http.StatusSeeOther {
		t.Fatalf("signing out: got %d", a.status)
	}
	r.site = first
	again := &http.Cookie{Name: "llmguard_console", Value: cookie}
	if a := b.do("GET", "/console/", nil, func(req *http.Request) { req.AddCookie(again) }); a.status != http.StatusSeeOther {
		t.Errorf("after signing out at the second proxy the first answers %d", a.status)
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
