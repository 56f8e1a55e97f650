package listen

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// files are the paths of a certificate and its key.
type files struct{ cert, key string }

// issue writes a certificate for localhost with a given serial number, and its key.
func issue(t *testing.T, f files, number int64) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(number), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, about, about, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	write(t, f.cert, text)
	write(t, f.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newFiles(t *testing.T) files {
	dir := t.TempDir()
	return files{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
}

// encrypted serves over TLS, and returns the address, the trusted certificates, and what was
// refused.
func encrypted(t *testing.T, within time.Duration) (addr string, trust *x509.CertPool, refused chan string) {
	t.Helper()
	f := newFiles(t)
	trust, refused = issue(t, f, 1), make(chan string, 10)
	cert, err := LoadCertificate(f.cert, f.key)
	if err != nil {
		t.Fatal(err)
	}
	return echo(t, TLS(local(t), cert, within, func(why string) { refused <- why })), trust, refused
}

// TestTLSServesBothVersions: HTTP/1.1 and HTTP/2 are served over TLS 1.2 and 1.3.
func TestTLSServesBothVersions(t *testing.T) {
	addr, trust, _ := encrypted(t, time.Minute)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, two := range []bool{false, true} {
			client := &http.Client{Timeout: redistest.Bound, Transport: &http.Transport{
				ForceAttemptHTTP2: two, TLSClientConfig: &tls.Config{RootCAs: trust, MaxVersion: version},
			}}
			resp, err := client.Post("https://"+addr+"/x", "text/plain", strings.NewReader("ab"))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			client.CloseIdleConnections()
			if want := `POST /x "ab" encrypted`; string(body) != want || resp.ProtoMajor == 2 != two {
				t.Errorf("HTTP/2 %v over %s: got %q by %s, want %q", two, tls.VersionName(version), body, resp.Proto, want)
			}
		}
	}
}

// TestTLSIsAsStrict: what is rejected without TLS is rejected with TLS.
func TestTLSIsAsStrict(t *testing.T) {
	addr, trust, _ := encrypted(t, time.Minute)
	for name, text := range ambiguous {
		c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: trust})
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(t, c, text, len(text)); !strings.HasPrefix(got, "HTTP/1.1 400 ") || strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%s: got %q, want one 400", name, got)
		}
	}
}

// TestOldTLSIsRefused: TLS 1.1 is refused.
func TestOldTLSIsRefused(t *testing.T) {
	addr, trust, refused := encrypted(t, time.Minute)
	//nolint:gosec // the point of it
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	if err == nil {
		c.Close()
		t.Fatal("a client of TLS 1.1 is served, want it refused")
	}
	if why := redistest.Came(t, refused); why != "handshake" {
		t.Errorf("told %q, want handshake", why)
	}
}

// TestUnfinishedHandshakes: a client that does not finish its handshake is disconnected and
// delays nobody, and one that speaks HTTP gets an explanation.
func TestUnfinishedHandshakes(t *testing.T) {
	brief, _, refused := encrypted(t, 100*time.Millisecond)
	silent, err := net.Dial("tcp", brief)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_ = silent.SetDeadline(time.Now().Add(time.Minute))
	if n, err := silent.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a silent client: got %d bytes, %v; want it cut off", n, err)
	}
	if why := redistest.Came(t, refused); why != "handshake" {
		t.Errorf("told %q, want handshake", why)
	}
	addr, trust, _ := encrypted(t, time.Minute)
	if silent, err = net.Dial("tcp", addr); err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 100); !strings.Contains(got, "400") || !strings.Contains(got, "HTTPS only") {
		t.Errorf("a client of HTTP: got %q, want 400 and why", got)
	}
	good, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: trust})
	if err != nil {
		t.Fatal(err)
	}
	_ = good.Close()
}

// TestCertificateIsReloaded: a replaced certificate is used without a restart, but not while
// only one of the files is replaced.
func TestCertificateIsReloaded(t *testing.T) {
	f := newFiles(t)
	issue(t, f, 1)
	cert, err := LoadCertificate(f.cert, f.key)
	if err != nil {
		t.Fatal(err)
	}
	addr := echo(t, TLS(local(t), cert, time.Minute, func(string) {}))
	number := func() int64 {
		c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // its number is compared
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	next := newFiles(t)
	issue(t, next, 2)
	half, err := os.ReadFile(next.cert)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f.cert, half)
	if _, err := cert.Reload(); err == nil || number() != 1 {
		t.Errorf("with the certificate of another key: got %v and certificate %d, want an error and the one before", err, number())
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cert.Watch(ctx, time.Millisecond, slog.New(slog.DiscardHandler)) }()
	issue(t, f, 3)
	for end := time.Now().Add(time.Minute); number() != 3; {
		if time.Now().After(end) {
			t.Fatal("the new certificate is not used")
		}
	}
	stop()
	if err := redistest.Came(t, ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of its context", err)
	}
	if time.Until(cert.Expires()) < 30*time.Minute {
		t.Errorf("got %s, want the end in an hour", cert.Expires())
	}
}
