package cli

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/llmguard/llmguard/config"
)

// caFlag adds --ca-file to a command that connects to llmguard over HTTPS.
func caFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "ca-file", "",
		"PEM file of CAs to trust in addition to the system's (default: LLMGUARD_CA_FILE)")
}

// client returns an HTTP client that trusts the system's certificate authorities and those in
// caFile, if given.
func client(caFile string, timeout time.Duration) (*http.Client, error) {
	caFile = cmp.Or(caFile, os.Getenv("LLMGUARD_CA_FILE"))
	if caFile == "" {
		return &http.Client{Timeout: timeout}, nil
	}
	text, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--ca-file: %s contains no certificate", caFile)
	}
	return trusting(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, timeout), nil
}

func trusting(t *tls.Config, timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: t, ForceAttemptHTTP2: true,
	}}
}

// ownClient returns an HTTP client for this configuration's admin listener on this machine. The
// certificate need not match the address.
func ownClient(t config.TLS, timeout time.Duration) (*http.Client, error) {
	if !t.Enabled() {
		return &http.Client{Timeout: timeout}, nil
	}
	text, err := os.ReadFile(t.CertFile)
	if err != nil {
		return nil, fmt.Errorf("admin.tls.cert_file: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("admin.tls.cert_file: %s contains no certificate", t.CertFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("admin.tls.cert_file: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return trusting(&tls.Config{RootCAs: pool, ServerName: nameOf(cert), MinVersion: tls.VersionTLS12}, timeout), nil
}

// nameOf returns a name that a certificate is valid for.
func nameOf(cert *x509.Certificate) string {
	if len(cert.DNSNames) > 0 {
		return strings.Replace(cert.DNSNames[0], "*", "any", 1)
	}
	if len(cert.IPAddresses) > 0 {
		return cert.IPAddresses[0].String()
	}
	return ""
}
