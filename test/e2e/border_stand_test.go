package e2e

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
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
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
	cmd := redistest.Process(t, name, args...)
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
