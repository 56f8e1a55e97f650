package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/llmguard/llmguard/bench/child"
)

// protocolNames are the protocols that the upstream supports. Real providers use h2.
var protocolNames = []string{"h2", "h1", "plain"}

// startUpstream starts the upstream of all targets.
func (b *bench) startUpstream(ctx context.Context) (*child.Process, error) {
	args := []string{"upstream", "-delay", b.delay.String()}
	if b.protocol != "plain" {
		b.cert = filepath.Join(b.dir, "upstream.pem")
		err := writeCertificate(b.cert)
		if err != nil {
			return nil, err
		}
		args = append(args, "-cert", b.cert)
	}
	if b.protocol == "h2" {
		args = append(args, "-h2")
	}
	return b.self(ctx, "upstream", args...)
}

func (b *bench) scheme() string {
	if b.cert == "" {
		return "http"
	}
	return "https"
}

func (b *bench) upstreamURL() string { return b.scheme() + "://" + b.upstream.Addr }

// trust returns the environment in which Go programs accept the upstream's certificate.
func (b *bench) trust() []string {
	if b.cert == "" {
		return nil
	}
	return []string{"SSL_CERT_FILE=" + b.cert}
}

// protocols returns the protocols that a child serves.
func protocols(h2 bool) *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetHTTP2(h2)
	return p
}

// writeCertificate writes a certificate for 127.0.0.1 and its key to one file.
func writeCertificate(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
	return os.WriteFile(path, text, 0o600)
}
