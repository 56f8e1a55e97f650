package e2e

import (
	"bufio"
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
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// proxies are the shipped configurations of proxies in front of llmguard. Each runs with other
// ports, paths and rates than the file has, and nothing else changed.
var proxies = map[string]func(t *testing.T, b *border){"nginx": startNginx, "haproxy": startHAProxy}

// border is a proxy in front of llmguard.
type border struct {
	url      string // ends in /v1
	changes  []string
	upstream string // host:port of llmguard
	admin    string
	dir      string
	port     string
	roots    *x509.CertPool
}

// atOne runs one of the proxies in front of a new stack's llmguard. changes are pairs of texts:
// what its file has, and what the test needs.
func atOne(t *testing.T, name, config string, changes ...string) (*stack, *process, *border) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed (Debian: apt-get install %s): deploy/border is not tried on it", name, name)
	}
	s := newStack(t, fakeprovider.Options{}, config+"trusted_proxies: [127.0.0.1]\n")
	p := s.proxy()
	b := &border{
		changes: changes, upstream: strings.TrimSuffix(strings.TrimPrefix(p.URL, "http://"), "/v1"),
		admin: strings.TrimPrefix(p.Admin, "http://"), dir: t.TempDir(), port: redistest.FreePort(t),
	}
	b.url = "https://localhost:" + b.port + "/v1"
	b.certificate(t)
	proxies[name](t, b)
	redistest.Eventually(t, name+" to serve", func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+b.port)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	return s, p, b
}

// file writes a shipped file with the changes of the test; each must apply.
func (b *border) file(t *testing.T, name string, changes ...string) string {
	t.Helper()
	data, err := os.ReadFile("../../deploy/border/" + name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	changes = append(changes, b.changes...)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			t.Fatalf("%s has no %q", name, changes[i])
		}
		text = strings.ReplaceAll(text, changes[i], changes[i+1])
	}
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate writes a certificate for localhost and its key, apart and in one file.
func (b *border) certificate(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	for name, data := range map[string][]byte{"crt": cert, "key": private, "pem": slices.Concat(cert, private)} {
		if err := os.WriteFile(filepath.Join(b.dir, "llmguard."+name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.roots = x509.NewCertPool()
	b.roots.AppendCertsFromPEM(cert)
}

// run runs a proxy in the foreground until the end of the test.
func (b *border) run(t *testing.T, name string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(b.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Stdout = log
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s logged:\n%s", name, text)
		}
	})
}

func startNginx(t *testing.T, b *border) {
	t.Helper()
	site := b.file(t, "nginx.conf", "listen 443", "listen 127.0.0.1:"+b.port, "127.0.0.1:8080", b.upstream,
		"/etc/nginx/llmguard.", b.dir+"/llmguard.", "llm.example.com", "localhost")
	conf := filepath.Join(b.dir, "main.conf")
	text := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c;
    uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
    set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol;
    include %[2]s;
}
`, b.dir, site)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.run(t, "nginx", "-c", conf, "-e", "stderr")
}

func startHAProxy(t *testing.T, b *border) {
	t.Helper()
	_, admin, _ := net.SplitHostPort(b.admin)
	conf := b.file(t, "haproxy.cfg", "bind :443", "bind 127.0.0.1:"+b.port, "127.0.0.1:8080", b.upstream,
		"port 9090", "port "+admin, "maxconn 20000", "maxconn 500", "/etc/haproxy/llmguard.pem", b.dir+"/llmguard.pem")
	b.run(t, "haproxy", "-db", "-f", conf)
}

// from returns a client with an address of this machine.
func (b *border) from(t *testing.T, address string) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	c := &http.Client{Timeout: 3 * time.Minute, Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: b.roots},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp4", "127.0.0.1:"+b.port)
		},
	}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// claim makes a client's connections begin with a PROXY header that names another address.
func (b *border) claim(c *http.Client, address string) {
	family := "TCP4"
	if strings.Contains(address, ":") {
		family = "TCP6"
	}
	transport := c.Transport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		conn, err := dial(ctx, network, to)
		if err == nil {
			_, err = fmt.Fprintf(conn, "PROXY %s %s %s 4000 443\r\n", family, address, address)
		}
		return conn, err
	}
}

// send posts a chat completion, or gets the models if the body is empty.
func (b *border) send(t *testing.T, c *http.Client, key, body string, header ...string) (*http.Response, error) {
	t.Helper()
	method, url := http.MethodPost, b.url+"/chat/completions"
	if body == "" {
		method, url = http.MethodGet, b.url+"/models"
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return c.Do(req)
}

// ask is send with the whole answer.
func (b *border) ask(t *testing.T, c *http.Client, key, body string, header ...string) answer {
	t.Helper()
	resp, err := b.send(t, c, key, body, header...)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(text), err: err}
}

// stepwise is a provider that sends each event of a stream only when it may.
func stepwise(t *testing.T) (url string, next chan struct{}) {
	t.Helper()
	next = make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		send := func(format string, args ...any) {
			_, _ = fmt.Fprintf(w, "data: "+format+"\n\n", args...)
			_ = http.NewResponseController(w).Flush()
		}
		const chunk = `{"id":"c","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":[%s],"usage":%s}`
		for n := range 3 {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
			send(chunk, fmt.Sprintf(`{"index":0,"delta":{"content":"part %d"},"finish_reason":null}`, n), "null")
		}
		send(chunk, `{"index":0,"delta":{},"finish_reason":"stop"}`, "null")
		send(chunk, "", `{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}`)
		send("[DONE]")
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/v1", next
}

// TestBorderStreams: each event of a stream reaches the caller before the provider sends the
// next one.
func TestBorderStreams(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider, next := stepwise(t)
			s, _, b := atOne(t, name, strings.ReplaceAll(simple("[]"), "${provider}", provider))
			go allow(t, next) // the headers come with the first event
			resp, err := b.send(t, b.from(t, "127.0.0.1"), s.keys["alice"], chat("gpt-4o", "hi", `"stream":true`))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			seen := 0
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() {
				if !strings.Contains(lines.Text(), fmt.Sprintf("part %d", seen)) {
					continue
				}
				if seen++; seen < 3 {
					allow(t, next)
				}
			}
			if seen != 3 || lines.Err() != nil {
				t.Errorf("got %d events and %v, want all of them", seen, lines.Err())
			}
		})
	}
}

// allow lets the provider send one event.
func allow(t *testing.T, next chan<- struct{}) {
	select {
	case next <- struct{}{}:
	case <-t.Context().Done():
	}
}

// few are changes that allow each address a few requests in a minute.
var few = map[string][]string{
	"nginx":   {"rate=20r/s", "rate=1r/m", "burst=40", "burst=5"},
	"haproxy": {"expire 60s", "expire 1h", "http_req_rate(10s)", "http_req_rate(1h)", "gt 200", "gt 6"},
}

// TestBorderFlood: what one address sends beyond its rate is refused at the border in OpenAI's
// form, and never reaches llmguard. Other addresses are served.
func TestBorderFlood(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, b := atOne(t, name, simple("[]"), few[name]...)
			c := b.from(t, "127.0.0.2")
			passed, refused := 0, answer{}
			for range 500 {
				a := b.ask(t, c, s.keys["alice"], "")
				if a.status != http.StatusOK {
					refused = a
					break
				}
				passed++
			}
			wantRefusal(t, refused, http.StatusTooManyRequests, "rate_limit_error", "rate_limit_exceeded")
			if passed < 5 {
				t.Errorf("got %d calls before the first refusal, want the burst", passed)
			}
			if a := b.ask(t, b.from(t, "127.0.0.3"), s.keys["alice"], ""); a.status != http.StatusOK {
				t.Errorf("another address: got %d, %v: %s", a.status, a.err, a.body)
			}
			redistest.Eventually(t, "the call of the other address in the log", func() bool { return len(callsFrom(p, "127.0.0.3")) == 1 })
			if n := len(callsFrom(p, "127.0.0.2")); n != passed {
				t.Errorf("llmguard saw %d calls of the flood, want the %d that passed", n, passed)
			}
		})
	}
}

// wantRefusal checks an answer of the border itself.
func wantRefusal(t *testing.T, a answer, status int, kind, code string) {
	t.Helper()
	if a.status != status || a.err != nil {
		t.Fatalf("got %d, %v: %s; want %d", a.status, a.err, a.body, status)
	}
	gotKind, gotCode, _ := errorOf(t, a)
	if gotKind != kind || gotCode != code || !strings.HasPrefix(a.header.Get("Content-Type"), "application/json") {
		t.Errorf("got %v: %s; want %s, %s", a.header, a.body, kind, code)
	}
	if later := a.header.Get("Retry-After") != ""; later != (status != http.StatusRequestEntityTooLarge) {
		t.Errorf("got headers %v with %d", a.header, status)
	}
}

// callsFrom returns the calls from an address that llmguard has logged so far.
func callsFrom(p *process, address string) (calls []map[string]any) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		if line["msg"] == "call" && line["ip"] == address {
			calls = append(calls, line)
		}
	}
	return calls
}

// TestBorderAddress: llmguard sees the caller's address, whatever the caller claims.
func TestBorderAddress(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, b := atOne(t, name, simple("[]"))
			a := b.ask(t, b.from(t, "127.0.0.4"), s.keys["alice"], chat("gpt-4o", "hi", ""), "X-Forwarded-For", "192.0.2.1")
			if a.status != http.StatusOK {
				t.Fatalf("got %d, %v: %s", a.status, a.err, a.body)
			}
			redistest.Eventually(t, "a call from 127.0.0.4 in the log", func() bool { return len(callsFrom(p, "127.0.0.4")) == 1 })
			if len(callsFrom(p, "192.0.2.1")) > 0 {
				t.Error("llmguard believes the caller's X-Forwarded-For")
			}
		})
	}
}

// TestBorderWaits: a call that waits in the queue is answered through the border, plain or as a
// stream, and what llmguard refuses passes unchanged.
func TestBorderWaits(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, b := atOne(t, name, simple(tight)+"queue: {keep_alive: 300ms}\n")
			s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Fill: true} })
			s.worker()
			c := b.from(t, "127.0.0.1")
			waits(t, func() bool {
				a := b.ask(t, c, s.keys["alice"], chat("gpt-4o", "hi", oneCall))
				if a.status != http.StatusOK || a.err != nil {
					t.Fatalf("got %d, %v: %s", a.status, a.err, a.body)
				}
				return a.header.Get("X-Llmguard-Waited-Ms") != ""
			})
			redistest.Eventually(t, "a stream that waited", func() bool {
				a := b.ask(t, c, s.keys["alice"], chat("gpt-4o", "hi", oneCall+`,"stream":true`))
				if a.status != http.StatusOK || a.err != nil || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
					t.Fatalf("got %d, %v: %q", a.status, a.err, a.body)
				}
				return strings.HasPrefix(a.body, "\n")
			})
			never := b.ask(t, c, s.keys["alice"], chat("gpt-4o", "hi", `"max_tokens":5000`))
			_, code, message := errorOf(t, never)
			if never.status != http.StatusTooManyRequests || code != "insufficient_quota" || !strings.Contains(message, `"small"`) {
				t.Errorf("got %d: %s", never.status, never.body)
			}
		})
	}
}

// TestBorderTimeouts: the border waits longer than llmguard does, and reuses no connection that
// llmguard may be closing.
func TestBorderTimeouts(t *testing.T) {
	t.Parallel()
	for file, timeouts := range map[string][]string{
		"nginx.conf":  {`proxy_read_timeout (\d+)s`},
		"haproxy.cfg": {`timeout client (\d+)s`, `timeout server (\d+)s`},
	} {
		text, err := os.ReadFile("../../deploy/border/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range timeouts {
			m := regexp.MustCompile(pattern).FindSubmatch(text)
			if m == nil {
				t.Errorf("%s has no %s", file, pattern)
				continue
			}
			got, _ := time.ParseDuration(string(m[1]) + "s")
			for name, least := range map[string]string{"response_header_timeout": "15m", "hold": "280s"} {
				want, _ := time.ParseDuration(least)
				wantDefault(t, name, least)
				if got <= want {
					t.Errorf("%s: %s is %s, want more than %s (%s)", file, pattern, got, name, least)
				}
			}
		}
	}
}

// wantDefault checks a default in the configuration reference.
func wantDefault(t *testing.T, name, value string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), fmt.Sprintf("**`%s`** (duration, default `%s`", name, value)) {
		t.Errorf("the default of %s is not %s any more", name, value)
	}
}

// TestBorderErrors: what the border refuses itself, and an llmguard that is down, are errors in
// OpenAI's form.
func TestBorderErrors(t *testing.T) {
	t.Parallel()
	size := map[string][]string{
		"nginx":   {"client_max_body_size 200m", "client_max_body_size 10k"},
		"haproxy": {"gt 209715200", "gt 10240"},
	}
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, b := atOne(t, name, simple("[]"), size[name]...)
			c := b.from(t, "127.0.0.1")
			large := b.ask(t, c, s.keys["alice"], chat("gpt-4o", strings.Repeat("x", 20<<10), ""))
			wantRefusal(t, large, http.StatusRequestEntityTooLarge, "invalid_request_error", "request_too_large")
			p.terminate()
			down := b.ask(t, c, s.keys["alice"], chat("gpt-4o", "hi", ""))
			wantRefusal(t, down, http.StatusServiceUnavailable, "service_unavailable_error", "server_is_overloaded")
		})
	}
}

// TestBorderConnections: one address has a limited number of calls (nginx) or connections
// (HAProxy) open.
func TestBorderConnections(t *testing.T) {
	t.Parallel()
	limits := map[string][]string{
		"nginx":   {"limit_conn llmguard_connections 100", "limit_conn llmguard_connections 2"},
		"haproxy": {"sc0_conn_cur gt 100", "sc0_conn_cur gt 2"},
	}
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, b := atOne(t, name, simple("[]"), limits[name]...)
			g := s.gate(nil)
			open := make(chan answer, 2)
			for range 2 {
				go func() { open <- b.ask(t, b.from(t, "127.0.0.5"), s.keys["alice"], chat("gpt-4o", gated, "")) }()
			}
			g.awaitHeld()
			g.awaitHeld()
			third := b.ask(t, b.from(t, "127.0.0.5"), s.keys["alice"], "")
			if name == "haproxy" {
				if third.err == nil {
					t.Errorf("got %d, want a closed connection", third.status)
				}
			} else {
				wantRefusal(t, third, http.StatusTooManyRequests, "rate_limit_error", "rate_limit_exceeded")
			}
			if a := b.ask(t, b.from(t, "127.0.0.6"), s.keys["alice"], ""); a.status != http.StatusOK {
				t.Errorf("another address: got %d, %v: %s", a.status, a.err, a.body)
			}
			g.release()
			g.release()
			for range 2 {
				if a := <-open; a.status != http.StatusOK {
					t.Errorf("got %d, %v: %s", a.status, a.err, a.body)
				}
			}
		})
	}
}

// TestBorderCountsNetworks: addresses of one IPv6 network of /64 are one caller at the border.
func TestBorderCountsNetworks(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string][]string{
		"nginx": slices.Concat(few["nginx"], []string{"ssl http2", "ssl http2 proxy_protocol"}),
		// A connection is counted before the header with its address is read, unless HAProxy is asked to wait for it.
		"haproxy": slices.Concat(few["haproxy"], []string{
			"alpn h2", "accept-proxy alpn h2", "tcp-request connection", "tcp-request session",
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, b := atOne(t, name, simple("[]"), changes...)
			ask := func(address string) answer {
				c := b.from(t, "127.0.0.1")
				b.claim(c, address)
				return b.ask(t, c, s.keys["alice"], "")
			}
			refused := answer{status: http.StatusOK}
			for n := 1; n < 100 && refused.status == http.StatusOK; n++ {
				refused = ask(fmt.Sprintf("2001:db8:7:9:%x::%x", n, n))
			}
			wantRefusal(t, refused, http.StatusTooManyRequests, "rate_limit_error", "rate_limit_exceeded")
			for _, other := range []string{"2001:db8:7:8::1", "2001:db8:7::1", "192.0.2.7"} {
				if a := ask(other); a.status != http.StatusOK {
					t.Errorf("%s: got %d, %v: %s", other, a.status, a.err, a.body)
				}
			}
		})
	}
}
