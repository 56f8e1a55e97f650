package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// inline matches what the content security policy forbids.
var inline = regexp.MustCompile(`(?i)<script>|<style|\sstyle=|\son\w+=|javascript:|https?://`)

// Every response, including errors, has the headers that protect against other sites.
func TestHeadersOfEveryAnswer(t *testing.T) {
	r := newRig(t, acme)
	b, stranger := r.signedIn(opsKey), r.browser()
	answers := map[string]answer{
		"signing in": stranger.do("GET", "/console/login", nil), "a refused key": stranger.post("/console/login",
			url.Values{"key": {"x"}}),
		"sent to sign in": stranger.do("GET", "/console/", nil), "an asset": stranger.do("GET", "/console/assets/console.js",
			nil),
		"a page that is not there": b.do("GET", "/console/nothing", nil), "a forged form": b.post("/console/act/cancel-job",
			url.Values{}),
	}
	for _, path := range paths {
		answers[path] = b.do("GET", path, nil)
	}
	for what, a := range answers {
		csp := a.header.Get("Content-Security-Policy")
		for _, want := range []string{
			"default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'",
			"frame-ancestors 'none'", "base-uri 'none'",
		} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: got the policy %q, want %s", what, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
			t.Errorf("%s: got the policy %q, want nothing unsafe", what, csp)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin",
		} {
			got := a.header.Get(name)
			if got != want {
				t.Errorf("%s: got %s %q, want %q", what, name, got, want)
			}
		}
		got := a.header.Get("Cache-Control")
		if what != "an asset" && got != "no-store" {
			t.Errorf("%s: got Cache-Control %q, want no-store", what, got)
		}
	}
}

// No page contains what the policy forbids or loads anything from elsewhere.
func TestPagesObeyTheirPolicy(t *testing.T) {
	r := newRig(t, acme)
	r.spend("acme", "alice", dollar)
	j := r.put("acme", "alice", "gpt-4o")
	b := r.signedIn(opsKey)
	for _, path := range append(paths[:len(paths):len(paths)], "/console/jobs/acme/"+j.ID, "/console/login",
		"/console/nothing") {
		a := b.do("GET", path, nil)
		if got := a.header.Get("Content-Type"); got != "text/html; charset=utf-8" {
			t.Errorf("%s: got Content-Type %q, want HTML", path, got)
		}
		found := inline.FindString(a.text)
		if found != "" {
			t.Errorf("%s: got %q, which the policy forbids", path, found)
		}
	}
}

func TestAssets(t *testing.T) {
	b := newRig(t, acme).browser()
	for name, kind := range map[string]string{
		"console.js": "javascript", "theme.js": "javascript", "console.css": "text/css", "icon.svg": "image/svg+xml",
	} {
		a := b.do("GET", "/console/assets/"+name, nil)
		if a.status != http.StatusOK || !strings.Contains(a.header.Get("Content-Type"), kind) ||
			a.header.Get("Cache-Control") != "private, max-age=3600" {
			t.Errorf("%s: got %d %s, Cache-Control %q; want 200 %s, kept for an hour", name, a.status,
				a.header.Get("Content-Type"), a.header.Get("Cache-Control"), kind)
		}
	}
	for _, path := range []string{
		"/console/assets/nothing.js", "/console/assets/../templates/org.html",
		"/console/assets/%2e%2e/templates/org.html",
	} {
		a := b.do("GET", path, nil)
		if a.status == http.StatusOK || strings.Contains(a.text, "{{") {
			t.Errorf("%s: got %d %.100s, want no file", path, a.status, a.text)
		}
	}
}

func TestPagesThatAreNotThere(t *testing.T) {
	r := newRig(t, acme)
	r.put("acme", "alice", "gpt-4o")
	b := r.signedIn(opsKey)
	for _, path := range []string{
		"/console/nothing", "/console/orgs", "/console/orgs/other", "/console/orgs/other/what-if",
		"/console/orgs/acme/users/nobody",
		"/console/orgs/other/users/alice", "/console/jobs/acme/job_nothing", "/console/jobs?org=acme&after=job_nothing",
		"/console/batches/acme/alice/batch_nothing", "/console/act/cancel-job",
	} {
		a := b.do("GET", path, nil)
		if a.status != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404", path, a.status)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		a := b.do(method, "/console/orgs/acme", nil)
		if a.status != http.StatusNotFound {
			t.Errorf("%s of a page: got %d, want 404", method, a.status)
		}
	}
	a := b.post("/console/act/format-disk", url.Values{"token": {b.token()}, "confirm": {"yes"}})
	if a.status != http.StatusNotFound {
		t.Errorf("an unknown action: got %d, want 404", a.status)
	}
}
