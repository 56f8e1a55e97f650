package cli_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate writes a certificate for a name or an address, with its key.
func certificate(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	if ip := net.ParseIP(name); ip != nil {
		about.IPAddresses = []net.IP{ip}
	} else {
		about.DNSNames = []string{name}
	}
	raw, err := x509.CreateCertificate(rand.Reader, about, about, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	writeFile(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})))
	writeFile(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	return cert, key
}

// newSecure starts a llmguard whose listeners use TLS: the one for callers has a certificate
// for 127.0.0.1, the one for operators a certificate for name.
func newSecure(t *testing.T, name string) (l *live, callersCA, adminCA string) {
	t.Helper()
	calls, callsKey := certificate(t, "127.0.0.1")
	admin, adminKey := certificate(t, name)
	l = newLiveAt(t, strings.Replace(listeners, `"127.0.0.1:0"}`, fmt.Sprintf(`"127.0.0.1:0", metrics_token: 5f1d8c0b7a96e342af04, tls: {cert_file: %q, key_file: %q}}`, admin, adminKey), 1)+
		fmt.Sprintf("tls: {cert_file: %q, key_file: %q}\n", calls, callsKey))
	return l, calls, admin
}

// TestCommandsOverHTTPS: commands work with TLS listeners and a metrics token, and trust only
// certificates that they were given.
func TestCommandsOverHTTPS(t *testing.T) {
	l, callersCA, adminCA := newSecure(t, "127.0.0.1")
	has(t, l.ask("orgs", "list", "--ca-file", adminCA), "acme")
	batches := []string{"batch", "list", "--url", l.app.URL() + "/v1", "--key", l.key, "--ca-file"}
	if _, notes, code := llmguard(t, append(batches, callersCA)...); code != 0 {
		t.Errorf("batch list: exit code %d, %s; want 0", code, notes)
	}
	if out, notes, code := llmguard(t, "doctor", "-c", l.file, "--url", l.app.AdminURL(), "--ca-file", adminCA); code != 0 {
		t.Errorf("doctor: exit code %d, %s%s; want 0", code, out, notes)
	}
	for _, args := range [][]string{
		append(batches, adminCA),
		{"orgs", "list", "--admin-url", l.app.AdminURL(), "--admin-key", l.admin},
		{"orgs", "list", "--admin-url", l.app.AdminURL(), "--admin-key", l.admin, "--ca-file", callersCA},
		{"doctor", "-c", l.file, "--url", l.app.AdminURL()},
	} {
		out, notes, code := llmguard(t, args...)
		if code == 0 || !strings.Contains(out+notes, "certificate") {
			t.Errorf("%v: exit code %d, %s%s; want the certificate refused", args, code, out, notes)
		}
	}
	t.Setenv("LLMGUARD_CA_FILE", adminCA)
	has(t, l.ask("orgs", "list"), "acme")
}

// TestDoctorKnowsItsOwnCertificate: doctor reaches the listener of its configuration file
// whatever name the certificate has.
func TestDoctorKnowsItsOwnCertificate(t *testing.T) {
	for _, name := range []string{"llmguard.example.com", "*.example.com"} {
		l, _, _ := newSecure(t, name)
		text, err := os.ReadFile(l.file)
		if err != nil {
			t.Fatal(err)
		}
		address := strings.TrimPrefix(l.app.AdminURL(), "https://")
		writeFile(t, l.file, strings.Replace(string(text), `admin: {listen: "127.0.0.1:0"`, `admin: {listen: "`+address+`"`, 1))
		if out, notes, code := llmguard(t, "doctor", "-c", l.file); code != 0 || !strings.Contains(out, "process "+address) {
			t.Errorf("for %s: exit code %d, %s%s; want 0 and the process", name, code, out, notes)
		}
	}
}
