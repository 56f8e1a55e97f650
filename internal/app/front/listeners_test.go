package front_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/redistest"
)

// issue writes a certificate with this number and its key into a directory, and returns the
// configuration that names them.
func issue(t *testing.T, dir string, number int64) string {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(number), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	raw, err := x509.CreateCertificate(rand.Reader, about, about, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: raw}, "tls.key": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("{cert_file: %q, key_file: %q}", filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
}

// over sends a request with a client that accepts any certificate, and returns the
// certificate's number.
func over(t *testing.T, req *http.Request, two bool) (got reply, proto string, number int64) {
	t.Helper()
	resp, err := (&http.Transport{
		DisableKeepAlives: !two, ForceAttemptHTTP2: two, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, IdleConnTimeout: time.Millisecond,
	}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.TLS != nil {
		number = resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	return reply{status: resp.StatusCode, header: resp.Header, body: string(body)}, resp.Proto, number
}

func request(t *testing.T, method, url, body string, header ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// TestBothListenersEncrypt checks that calls, probes, metrics and the administrators' API
// work over TLS, with HTTP/1.1 and HTTP/2, and that a reload uses a new certificate or
// reports why not.
func TestBothListenersEncrypt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := issue(t, dir, 1)
	r := startAdmin(t, "tls: "+files, "tls: "+files+"\n")
	chat := `{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}],"max_tokens":5,"stream":true}`
	for _, two := range []bool{false, true} {
		for path, req := range map[string]*http.Request{
			"a call":  request(t, "POST", r.URL()+"/v1/chat/completions", chat, "Authorization", "Bearer "+r.key),
			"ready":   request(t, "GET", r.AdminURL()+"/readyz", ""),
			"metrics": request(t, "GET", r.AdminURL()+"/metrics", ""),
		} {
			got, proto, _ := over(t, req, two)
			if path == "metrics" && strings.Count(got.body, "\nllmguard_listen_certificate_expires_timestamp_seconds{") != 2 {
				t.Error("the metrics do not say when both certificates end")
			}
			if got.status != 200 || proto == "HTTP/2.0" != two {
				t.Errorf("%s: got status %d by %s, %s; want 200, HTTP/2 %v", path, got.status, proto, got.body, two)
			}
		}
	}
	issue(t, dir, 2)
	if _, err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{r.URL() + "/", r.AdminURL() + "/healthz"} {
		if _, _, number := over(t, request(t, "GET", url, ""), false); number != 2 {
			t.Errorf("%s after a reload: got certificate %d, want 2", url, number)
		}
	}
	if err := os.Remove(filepath.Join(dir, "tls.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "tls.key") {
		t.Errorf("reload without the key's file: got %v, want an error that names it", err)
	}
	if _, _, number := over(t, request(t, "GET", r.URL()+"/", ""), false); number != 2 {
		t.Errorf("after it: got certificate %d, want 2", number)
	}
}

// TestConsoleCookie checks that over an encrypted connection the session's cookie is Secure
// and bound to this host, and that no other one is accepted.
func TestConsoleCookie(t *testing.T) {
	t.Parallel()
	const proto = "X-Forwarded-Proto"
	plain := start(t, app.Proxy, "")
	trusting := start(t, app.Proxy, "trusted_proxies: [127.0.0.1]\n")
	encrypted := startAdmin(t, "tls: "+issue(t, t.TempDir(), 1), "")
	for _, test := range []struct {
		name   string
		r      *running
		header []string
		secure bool
	}{
		{"plain HTTP", plain, nil, false},
		{"a stranger says https", plain, []string{proto, "https"}, false},
		{"a trusted proxy says https", trusting, []string{proto, "https"}, true},
		{"a trusted proxy says http", trusting, []string{proto, "http"}, false},
		{"TLS", encrypted, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			key := test.r.newAdminKey(t, fmt.Sprintf(`{"id":%q}`, strings.ReplaceAll(strings.ToLower(test.name), " ", "-")))
			header := append([]string{"Content-Type", "application/x-www-form-urlencoded"}, test.header...)
			form := url.Values{"key": {key}}.Encode()
			in, _, _ := over(t, request(t, "POST", test.r.AdminURL()+"/console/login", form, header...), false)
			cookies := (&http.Response{Header: in.header}).Cookies()
			if in.status != http.StatusSeeOther || len(cookies) != 1 {
				t.Fatalf("signing in: got status %d and cookies %v, want 303 and one", in.status, cookies)
			}
			c := cookies[0]
			name, path := "llmguard_console", "/console/"
			if test.secure {
				name, path = "__Host-llmguard_console", "/"
			}
			if c.Name != name || c.Path != path || c.Secure != test.secure || !c.HttpOnly || c.Domain != "" {
				t.Errorf("got the cookie %s, want %s for %s, Secure %v", c, name, path, test.secure)
			}
			for sent, want := range map[string]int{"llmguard_console": 303, "__Host-llmguard_console": 303, name: 200} {
				header := append([]string{"Cookie", sent + "=" + c.Value}, test.header...)
				got, _, _ := over(t, request(t, "GET", test.r.AdminURL()+"/console/", "", header...), false)
				if got.status != want {
					t.Errorf("with %s: got status %d, want %d", sent, got.status, want)
				}
			}
		})
	}
}

// TestAdminHosts checks that a web page whose name is resolved to the admin listener gets
// nothing from it, neither metrics nor a form to sign in, and that names that no page can
// have, and configured ones, are answered.
func TestAdminHosts(t *testing.T) {
	t.Parallel()
	r := startAdmin(t, `hosts: ["console.acme.example", "*.corp.example"]`, "")
	port := r.AdminURL()[strings.LastIndex(r.AdminURL(), ":"):]
	for host, want := range map[string]int{
		"evil.example": 421, "evil.example" + port: 421, "127.0.0.1.evil.example": 421, "corp.example": 421,
		"localhost" + port: 200, "127.0.0.1" + port: 200, "proxy-1": 200, "llmguard.default.svc" + port: 200,
		"console.acme.example": 200, "Console.Acme.Example:443": 200, "a.b.corp.example": 200,
	} {
		for _, path := range []string{"/metrics", "/console/login"} {
			req := request(t, "GET", r.AdminURL()+path, "")
			req.Host = host
			got, _, _ := over(t, req, false)
			if got.status != want || want == 421 && !strings.Contains(got.body, "admin.hosts") {
				t.Errorf("%s for %s: got status %d, %.200s; want %d", path, host, got.status, got.body, want)
			}
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/admin/v1/orgs": 421} {
		req := request(t, "GET", r.AdminURL()+path, "")
		req.Host = "evil.example"
		if got, _, _ := over(t, req, false); got.status != want {
			t.Errorf("%s for evil.example: got status %d, want %d", path, got.status, want)
		}
	}
}

// TestMetricsToken checks that admin.metrics_token protects the metrics and leaves the
// probes open.
func TestMetricsToken(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef0123"
	r := startAdmin(t, "metrics_token: "+token, "")
	admin := r.newAdminKey(t, `{"id":"ops"}`)
	for name, test := range map[string]struct {
		path   string
		header []string
		want   int
	}{
		"the token":              {"/metrics", []string{"Authorization", "Bearer " + token}, 200},
		"nothing":                {"/metrics", nil, 401},
		"half of it":             {"/metrics", []string{"Authorization", "Bearer " + token[:10]}, 401},
		"a caller's key":         {"/metrics", []string{"Authorization", "Bearer " + r.key}, 401},
		"an administrator's key": {"/metrics", []string{"Authorization", "Bearer " + admin}, 401},
		"health":                 {"/healthz", nil, 200},
		"readiness":              {"/readyz", nil, 200},
	} {
		got, _, _ := over(t, request(t, "GET", r.AdminURL()+test.path, "", test.header...), false)
		if got.status != test.want || strings.Contains(got.body, "llmguard_") != (test.want == 200 && test.path == "/metrics") {
			t.Errorf("%s: got status %d, %.100s; want %d", name, got.status, got.body, test.want)
		}
	}
	next := *r.file
	next.Admin.MetricsToken = "fedcba9876543210fedc"
	r.file = &next
	if _, err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for sent, want := range map[string]int{token: 401, next.Admin.MetricsToken.Reveal(): 200} {
		got, _, _ := over(t, request(t, "GET", r.AdminURL()+"/metrics", "", "Authorization", "Bearer "+sent), false)
		if got.status != want {
			t.Errorf("%s after a reload: got status %d, want %d", sent, got.status, want)
		}
	}
}

// TestWrongKeysShareABucket checks that wrong keys sent to one listener use up the attempts
// of the other, and that valid keys are not locked out of either.
func TestWrongKeysShareABucket(t *testing.T) {
	t.Parallel()
	r := startAdmin(t, "metrics_token: 0123456789abcdef0123", "")
	o := r.operator(t)
	status := func(url, key string) int {
		got, _, _ := over(t, request(t, "GET", url, "", "Authorization", "Bearer "+key), false)
		return got.status
	}
	// The valid keys are known before the guesses start: a newly created key is not
	// looked up while too many wrong ones arrive.
	if got := status(o.url+"/orgs", o.key); got != 200 {
		t.Fatalf("the administrator, before: got status %d, want 200", got)
	}
	if got := status(r.URL()+"/v1/models", r.key); got != 200 {
		t.Fatalf("the caller, before: got status %d, want 200", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	var guesses sync.WaitGroup
	for range 4 {
		guesses.Go(func() {
			for ctx.Err() == nil {
				_ = r.status(r.AdminURL() + "/metrics") // with a caller's key
			}
		})
	}
	await(t, "guesses are refused", func() bool { return r.status(r.AdminURL()+"/metrics") == 429 })
	for name, ask := range map[string]func() int{
		"an administrator's key": func() int { return status(o.url+"/orgs", keys.New(keys.Admin)) },
		"a caller's key":         func() int { return status(r.URL()+"/v1/models", keys.New(keys.Live)) },
	} {
		refused := false
		// One failure is allowed again per second, and these requests may have got
		// it; with separate buckets all of them would be 401.
		for range 10 {
			refused = refused || ask() == 429
		}
		if !refused {
			t.Errorf("%s that is wrong, after wrong tokens elsewhere: never 429", name)
		}
	}
	stop()
	redistest.Wait(t, guesses.Wait)
	if got := status(o.url+"/orgs", o.key); got != 200 {
		t.Errorf("the administrator: got status %d, want 200", got)
	}
	if got := status(r.URL()+"/v1/models", r.key); got != 200 {
		t.Errorf("the caller: got status %d, want 200", got)
	}
}
