package proxy

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/queue"
)

func TestMain(m *testing.M) {
	logging.Disable() // as in the commands
	// After its server died, a client sleeps up to a second between dials, even while it is closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// TestAuth: which callers are admitted, and that all refused callers get the same answer.
func TestAuth(t *testing.T) {
	pepper, old := keys.Pepper{ID: "p2", Secret: "second-pepper-secret"}, keys.Pepper{ID: "p1", Secret: "first-pepper-secret-"}
	text := map[string]string{}
	for _, name := range []string{"plain", "new", "old", "expired", "soon", "disabled", "unknown"} {
		text[name] = keys.New(keys.Live)
	}
	text["admin"], text["test"] = keys.New(keys.Admin), keys.New(keys.Test)
	org := &guard.Org{Org: settings.Org{ID: "acme"}}
	d := &auth.Directory{Peppers: []keys.Pepper{pepper, old}, ByHash: map[string]auth.Principal{
		keys.Hash(keys.Pepper{}, text["plain"]): {Org: org, User: "u", Key: "plain"},
		keys.Hash(pepper, text["new"]):          {Org: org, User: "u", Key: "new", Models: []string{"gpt-4o"}},
		keys.Hash(old, text["old"]):             {Org: org, User: "u", Key: "old"},
		keys.Hash(pepper, text["expired"]):      {Org: org, User: "u", Key: "expired", Expires: time.Now().Add(-time.Second)},
		keys.Hash(pepper, text["soon"]):         {Org: org, User: "u", Key: "soon", Expires: time.Now().Add(time.Hour)},
		keys.Hash(pepper, text["disabled"]):     {Org: org, User: "u", Key: "disabled", Disabled: true},
		keys.Hash(pepper, text["admin"]):        {Org: org, User: "u", Key: "admin"},
		keys.Hash(pepper, text["test"]):         {Org: org, User: "u", Key: "test"},
		keys.Hash(keys.Pepper{}, "sk-other"):    {Org: org, User: "u", Key: "other"},
	}}
	s := New(Options{Directory: d})
	n := 0
	try := func(h http.Header) (auth.Principal, error) {
		n++
		ip := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
		return s.auth.authenticate(&http.Request{Header: h}, ip)
	}
	refusals := map[string]bool{}
	f := func(name string, h http.Header, in bool) {
		t.Helper()
		c, err := try(h)
		if in != (err == nil) || in && (c.Key != name || c.User != "u" || c.Org != org) {
			t.Errorf("%s %v: %+v, %v", name, h, c, err)
		}
		if !in && err != nil && len(h["Authorization"])+len(h["Api-Key"]) == 1 && strings.Count(fmt.Sprint(h), " ") == 1 {
			refusals[err.Error()] = true
		}
		for _, secret := range text {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the refusal of %s repeats the key", name)
			}
		}
	}
	bearer := func(key string) http.Header { return http.Header{"Authorization": {"Bearer " + key}} }
	for _, name := range []string{"plain", "new", "old", "soon", "test"} {
		f(name, bearer(text[name]), true)
		f(name, http.Header{"Authorization": {"bearer  " + text[name] + " "}}, true)
		f(name, http.Header{"Api-Key": {text[name]}}, true)
	}
	for _, name := range []string{"expired", "disabled", "unknown"} {
		f(name, bearer(text[name]), false)
	}
	if len(refusals) != 1 {
		t.Errorf("refusals tell keys apart: %v", refusals)
	}
	good := text["new"]
	for key, why := range map[string]string{
		text["admin"]: "an administrator's key", good[:20]: "not an llmguard key", "Bearer " + good: "without quotes or spaces",
		good[:len(good)-1] + "é": "not an llmguard key", "$OPENAI_API_KEY": "not an llmguard key",
	} {
		if _, err := try(bearer(key)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: got %v, want %s", key, err, why)
		}
	}
	f("damaged", bearer(good[:len(good)-1]+"!"), false)
	f("foreign", bearer("sk-other"), false)
	f("empty", bearer(""), false)
	f("none", http.Header{}, false)
	f("basic", http.Header{"Authorization": {"Basic " + good}}, false)
	f("bare", http.Header{"Authorization": {good}}, false)
	f("two", http.Header{"Authorization": {"Bearer " + good, "Bearer " + good}}, false)
	f("both", http.Header{"Authorization": {"Bearer " + good}, "Api-Key": {good}}, false)
	if c, _ := try(bearer(good)); len(c.Models) != 1 {
		t.Error("the key's own models are lost")
	}
	s.SetDirectory(&auth.Directory{})
	f("new", bearer(good), false)
}

func TestFailuresBlock(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	for range 20 {
		r.call("GET", "/v1/models", "", "Authorization", "Bearer wrong").fails(t, 401, "invalid_api_key")
	}
	a := r.call("GET", "/v1/models", "", "Authorization", "Bearer wrong")
	if a.fails(t, 429, "rate_limit_exceeded"); a.header.Get("Retry-After") == "" {
		t.Errorf("headers %v, want Retry-After", a.header)
	}
	if a := r.call("GET", "/v1/models", ""); a.status != 200 {
		t.Errorf("a right key behind the same address is locked out: %d, want 200", a.status)
	}
	if a := r.call("GET", "/", "", "Authorization", ""); a.status != 200 {
		t.Errorf("the greeting answers %d, want 200", a.status)
	}
}

func TestClientIP(t *testing.T) {
	s := New(Options{Directory: &auth.Directory{}, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}})
	f := func(remote, want string, forwarded ...string) {
		t.Helper()
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = remote
		r.Header["X-Forwarded-For"] = forwarded
		if got := s.auth.clientIP(r).String(); got != want {
			t.Errorf("%s with %q is %s, want %s", remote, forwarded, got, want)
		}
	}
	f("9.9.9.9:1", "9.9.9.9", "1.1.1.1") // the peer is not trusted
	f("10.0.0.1:1", "10.0.0.1")
	f("10.0.0.1:1", "1.1.1.1", "1.1.1.1")
	f("10.0.0.1:1", "2.2.2.2", "1.1.1.1, 2.2.2.2") // the trusted proxy appended the address it saw
	f("10.0.0.1:1", "2.2.2.2", "1.1.1.1", "2.2.2.2, 10.0.0.9")
	f("10.0.0.1:1", "10.0.0.8", "10.0.0.8, 10.0.0.9") // all trusted: the farthest
	f("10.0.0.1:1", "10.0.0.9", "1.1.1.1, rubbish, 10.0.0.9")
	f("10.0.0.1:1", "10.0.0.1", "")
	f("[fd00::1]:1", "2001:db8::1", "2001:db8::1")
	f("[::ffff:10.0.0.1]:1", "1.1.1.1", "::ffff:1.1.1.1")
	f("@", "invalid IP", "1.1.1.1")

	for text, want := range map[string]string{ // what load balancers write
		"203.0.113.7:40000": "203.0.113.7", "[2001:db8::1]:443": "2001:db8::1", "[2001:db8::1]": "2001:db8::1",
		`"[2001:db8::1]:443"`: "2001:db8::1", `"203.0.113.7"`: "203.0.113.7", "fe80::1%eth0": "fe80::1", "[fe80::1%eth0]:1": "fe80::1",
		"::ffff:203.0.113.7": "203.0.113.7", "[::ffff:203.0.113.7]:9": "203.0.113.7", "\t203.0.113.7 ": "203.0.113.7",
		"203.0.113.7:_p": "203.0.113.7",
		"unknown":        "", "_hidden": "", "unknown:80": "", "203.0.113.7 1.1.1.1": "", "[2001:db8::1": "", "[2001:db8::1]443": "",
		"203.0.113.7:1 2": "", "203.0.113.7,": "", "203.0.113": "", "0x7f.1": "", "2001:db8::1]:4": "",
	} {
		if want == "" {
			want = "10.0.0.1"
		}
		f("10.0.0.1:1", want, "1.1.1.1, "+text)
		if want == "10.0.0.1" {
			want = "10.2.3.4" // the proxy that reported it
		}
		f("10.0.0.1:1", want, "1.1.1.1", text+`, "[::ffff:10.2.3.4]:80"`, "10.0.0.9:1")
	}
}

// TestForwarded: RFC 7239's header counts without X-Forwarded-For, and what cannot be read is logged once.
func TestForwarded(t *testing.T) {
	var log strings.Builder
	s := New(Options{
		Directory: &auth.Directory{}, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	f := func(want string, header http.Header) {
		t.Helper()
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Header = "10.0.0.1:1", header
		if got := s.auth.clientIP(r).String(); got != want {
			t.Errorf("%q is %s, want %s", header, got, want)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"for=203.0.113.7", "203.0.113.7"},
		{`For="[2001:db8::1]:443";proto=https;by=10.0.0.1`, "2001:db8::1"},
		{`proto=http; for = "203.0.113.7:80"`, "203.0.113.7"},
		{`for=1.1.1.1, for=203.0.113.7;proto=https, for="10.0.0.9:1"`, "203.0.113.7"},
		{`for="x, for=203.0.113.7`, "203.0.113.7"},      // the caller opened a quote
		{`for=1.1.1.1;by="a,b;for=9.9.9.9"`, "1.1.1.1"}, // not a parameter
		{`for=1.1.1.1;for=2.2.2.2`, "10.0.0.1"},         // ambiguous
		{`for=1.1.1.1, for=unknown`, "10.0.0.1"},
		{`for=1.1.1.1, for="_gazonk"`, "10.0.0.1"},
		{`for=1.1.1.1, proto=https`, "10.0.0.1"},
		{`for=1.1.1.1, for=_a, for=10.0.0.9`, "10.0.0.9"},
	} {
		f(c.want, http.Header{"Forwarded": {c.text}})
	}
	f("203.0.113.7", http.Header{"Forwarded": {"for=1.1.1.1", "for=203.0.113.7, for=10.9.9.9"}})
	f("2.2.2.2", http.Header{"Forwarded": {"for=1.1.1.1"}, "X-Forwarded-For": {"2.2.2.2"}}) // a proxy that writes the latter passes on the former
	if got := strings.Count(log.String(), "unreadable"); got != 1 || !strings.Contains(log.String(), "for=2.2.2.2") {
		t.Errorf("logged %d lines, want one: %s", got, log.String())
	}
}

// TestCallersMistakes: a message names what was probably meant.
func TestCallersMistakes(t *testing.T) {
	r := runRig(t)
	const messages = `"messages":[{"role":"user","content":"hi"}]`
	const broken, unread = `{'model':'gpt-4o'}`, "double quotes around names and texts"
	good := `{"model":"gpt-4o","max_tokens":10,` + messages + `}`
	p := *r.guard.Policy()
	p.Labels = []guard.Label{{Name: "plan", From: []guard.LabelSource{{Header: "llmguard-budgets"}}, MaxValues: 10}}
	r.guard.SetPolicy(&p)
	for _, c := range []struct {
		path, body, header string
		status             int
		code, want         string
	}{
		{"/v1/v1/chat/completions", good, "", 404, "unknown_url", "Did you mean /v1/chat/completions?"},
		{"/v1/chat/completion", good, "", 404, "unknown_url", "Did you mean /v1/chat/completions?"},
		{"/admin/v1/orgs", good, "", 404, "unknown_url", "on the admin listener"},
		{"/v1/chat/completions", broken, "", 400, "", unread},
		{"/v1/chat/completions", `{"model":"gpt-4o","max_token":10,` + messages + `}`, "", 400, "unknown_parameter", `did you mean "max_tokens"`},
		{"/v1/chat/completions", `{"model":"gpt4o",` + messages + `}`, "", 400, "model_not_priced", `did you mean "gpt-4o"?`},
		{"/v1/chat/completions", good, "X-Llmguard-Budget", 400, "unknown_parameter", "did you mean Llmguard-Budget?"},
		{"/v1/chat/completions", good, "Llmguard-Prioritty", 400, "unknown_parameter", "did you mean Llmguard-Priority?"},
		{"/v1/chat/completions", good, "X-Llmguard-Prioritty", 400, "unknown_parameter", "did you mean Llmguard-Priority?"},
		{"/v1/chat/completions", broken, "Llmguard-Task", 400, "", unread},
		{"/v1/chat/completions", broken, "Llmguard-App", 400, "", unread},
		{"/v1/chat/completions", broken, "Llmguard-Widget", 400, "", unread},
		{"/v1/chat/completions", broken, "Llmguard-Budgets", 400, "", unread}, // of a label
	} {
		var header []string
		if c.header != "" {
			header = []string{c.header, "x"}
		}
		if got := r.call("POST", c.path, c.body, header...).fails(t, c.status, c.code); !strings.Contains(got, c.want) {
			t.Errorf("%s %s %s: got %q, want %q in it", c.path, c.body, c.header, got, c.want)
		}
	}
}
