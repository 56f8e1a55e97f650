package tracing

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clearOTLP unsets the exporter's variables.
func clearOTLP(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"ENDPOINT", "HEADERS", "TIMEOUT", "COMPRESSION", "CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY", "INSECURE",
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_"+name, "")
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_"+name, "")
	}
}

// set sets variables; OTEL_EXPORTER_OTLP_ is added to their names.
func set(t *testing.T, env map[string]string) {
	t.Helper()
	clearOTLP(t)
	for name, value := range env {
		t.Setenv("OTEL_EXPORTER_OTLP_"+name, value)
	}
}

// TestTargetURL: the configuration takes precedence over the variable for traces, and that over
// the one for all signals, to which the path is appended.
func TestTargetURL(t *testing.T) {
	type env map[string]string
	for _, c := range []struct {
		endpoint string
		env      env
		want     string
	}{
		{"", nil, "https://localhost:4318/v1/traces"},
		{"http://c:4318", env{"ENDPOINT": "http://other", "TRACES_ENDPOINT": "http://third"}, "http://c:4318/v1/traces"},
		{"http://c:4318", env{"ENDPOINT": "other:4317", "INSECURE": "false"}, "http://c:4318/v1/traces"},
		{"https://c/otlp", env{"INSECURE": "true"}, "https://c/otlp"},
		{"", env{"ENDPOINT": "http://c:4318"}, "http://c:4318/v1/traces"},
		{"", env{"ENDPOINT": " http://c:4318/ "}, "http://c:4318/v1/traces"},
		{"", env{"ENDPOINT": "https://c/otlp/"}, "https://c/otlp/v1/traces"},
		{"", env{"ENDPOINT": "http://other", "TRACES_ENDPOINT": "http://c/path"}, "http://c/path"},
		{"", env{"TRACES_ENDPOINT": "http://c:4318"}, "http://c:4318/"},
		{"", env{"ENDPOINT": "https://c", "INSECURE": "true"}, "http://c/v1/traces"},
		{"", env{"ENDPOINT": "http://c", "INSECURE": "false"}, "https://c/v1/traces"},
		{"", env{"ENDPOINT": "https://c", "INSECURE": "false", "TRACES_INSECURE": "TRUE"}, "http://c/v1/traces"},
	} {
		set(t, c.env)
		got, err := newTarget(Options{Endpoint: c.endpoint})
		if err != nil {
			t.Errorf("%q, %v: %v", c.endpoint, c.env, err)
			continue
		}
		if got.url.String() != c.want {
			t.Errorf("%q, %v: got %s, want %s", c.endpoint, c.env, got.url, c.want)
		}
	}
}

// TestTargetHeaders: headers follow the same precedence, and only one source is used.
func TestTargetHeaders(t *testing.T) {
	type headers = map[string]string
	for _, c := range []struct {
		options headers
		env     map[string]string
		want    headers
	}{
		{nil, nil, nil},
		{
			nil,
			map[string]string{"HEADERS": "authorization=Bearer%20x%3D, x-org = acme ,"},
			headers{"Authorization": "Bearer x=", "X-Org": "acme"},
		},
		{nil, map[string]string{"HEADERS": "a=1,b=2", "TRACES_HEADERS": "a=3"}, headers{"A": "3"}},
		{headers{"a": "4"}, map[string]string{"HEADERS": "a=1,b=2", "TRACES_HEADERS": "no pair"}, headers{"a": "4"}},
	} {
		set(t, c.env)
		got, err := newTarget(Options{Endpoint: "http://c", Headers: c.options})
		if err != nil {
			t.Errorf("%v, %v: %v", c.options, c.env, err)
			continue
		}
		if !maps.Equal(got.headers, c.want) {
			t.Errorf("%v, %v: got %v, want %v", c.options, c.env, got.headers, c.want)
		}
	}
}

// TestTargetSettings: so do the timeout and the compression.
func TestTargetSettings(t *testing.T) {
	for _, c := range []struct {
		env     map[string]string
		timeout time.Duration
		gzip    bool
	}{
		{nil, 10 * time.Second, false},
		{map[string]string{"TIMEOUT": "2500", "COMPRESSION": "gzip"}, 2500 * time.Millisecond, true},
		{map[string]string{"TIMEOUT": "1", "TRACES_TIMEOUT": "3", "TRACES_COMPRESSION": "gzip"}, 3 * time.Millisecond, true},
		{map[string]string{"COMPRESSION": "gzip", "TRACES_COMPRESSION": "none"}, 10 * time.Second, false},
	} {
		set(t, c.env)
		got, err := newTarget(Options{Endpoint: "http://c"})
		if err != nil {
			t.Errorf("%v: %v", c.env, err)
			continue
		}
		if got.timeout != c.timeout || got.gzip != c.gzip {
			t.Errorf("%v: got %s and %v, want %s and %v", c.env, got.timeout, got.gzip, c.timeout, c.gzip)
		}
	}
}

// TestTargetRefused: an invalid variable is an error that names it and reveals no header value.
func TestTargetRefused(t *testing.T) {
	for name, value := range map[string]string{
		"ENDPOINT":                  "collector:4318",
		"TRACES_ENDPOINT":           "ftp://collector",
		"HEADERS":                   "a=1,the-secret",
		"TRACES_HEADERS":            "a b=the-secret",
		"TIMEOUT":                   "10s",
		"CERTIFICATE":               "/none",
		"TRACES_CERTIFICATE":        os.Args[0], // not a certificate
		"CLIENT_CERTIFICATE":        "/none",
		"TRACES_CLIENT_CERTIFICATE": "/none",
	} {
		set(t, map[string]string{name: value, "CLIENT_KEY": "/none", "TRACES_CLIENT_KEY": "/none"})
		if !strings.Contains(name, "CLIENT") {
			set(t, map[string]string{name: value})
		}
		_, err := New(Options{})
		named := err != nil && strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_"+name)
		if !named || strings.Contains(err.Error(), "the-secret") {
			t.Errorf("%s=%s: got %v, want an error that names it", name, value, err)
		}
	}
	set(t, map[string]string{"CERTIFICATE": writePEM(t, "CERTIFICATE", httptestCertificate(t))})
	if _, err := New(Options{Endpoint: "http://c"}); err == nil {
		t.Error("a certificate for an endpoint without TLS is no error")
	}
}

// httptestCertificate returns the certificate of Go's test servers.
func httptestCertificate(t *testing.T) []byte {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	return srv.Certificate().Raw
}

func writePEM(t *testing.T, kind string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// clientPair writes a certificate and its key.
func clientPair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, about, about, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, "CERTIFICATE", raw), writePEM(t, "PRIVATE KEY", text)
}

// TestCertificates: the collector is verified with the CA from the environment, and receives
// the client certificate.
func TestCertificates(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	authority := writePEM(t, "CERTIFICATE", srv.Certificate().Raw)
	cert, key := clientPair(t)
	for _, c := range []struct {
		name string
		env  map[string]string
		want bool
	}{
		{"for all signals", map[string]string{"CERTIFICATE": authority, "CLIENT_CERTIFICATE": cert, "CLIENT_KEY": key}, true},
		{"for traces", map[string]string{
			"CERTIFICATE": cert, "TRACES_CERTIFICATE": authority,
			"CLIENT_CERTIFICATE": "/none", "CLIENT_KEY": "/none",
			"TRACES_CLIENT_CERTIFICATE": cert, "TRACES_CLIENT_KEY": key,
		}, true},
		{"without a client certificate", map[string]string{"CERTIFICATE": authority}, false},
		{"another authority", map[string]string{"CERTIFICATE": cert, "CLIENT_CERTIFICATE": cert, "CLIENT_KEY": key}, false},
	} {
		set(t, c.env)
		to, err := newTarget(Options{Endpoint: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		err = newClient(to).UploadTraces(t.Context(), someSpans())
		if got := err == nil; got != c.want {
			t.Errorf("%s: got %v, want success %v", c.name, err, c.want)
		}
	}
}
