package listen

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Certificate is a listener's certificate and key, from two PEM files that may be replaced
// while it is in use. It is safe for concurrent use.
type Certificate struct {
	certFile, keyFile string

	mu        sync.Mutex
	cert, key []byte // contents of the files
	pair      *tls.Certificate
}

// LoadCertificate reads a certificate, with its chain, and its key.
func LoadCertificate(certFile, keyFile string) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile}
	if _, err := c.Reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// Reload reads the files again and reports whether they changed. After an error the certificate
// is unchanged.
func (c *Certificate) Reload() (changed bool, err error) {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return false, fmt.Errorf("certificate: %w", err)
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return false, fmt.Errorf("certificate: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("certificate: %s and %s: %w", c.certFile, c.keyFile, err)
	}
	c.cert = cert
	c.key = key
	c.pair = &pair
	return true, nil
}

// Watch reloads periodically until ctx is done. While only one of the two files has been
// replaced, the certificate stays unchanged.
func (c *Certificate) Watch(ctx context.Context, every time.Duration, log *slog.Logger) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		changed, err := c.Reload()
		switch {
		case err != nil && !failing:
			log.WarnContext(ctx, "certificate not reloaded, still using the previous one", "err", err)
		case changed:
			log.InfoContext(ctx, "certificate reloaded", "file", c.certFile, "expires", c.Expires())
		}
		failing = err != nil
	}
}

// Expires returns when the certificate expires.
func (c *Certificate) Expires() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair.Leaf == nil { // GODEBUG=x509keypairleaf=0
		return time.Time{}
	}
	return c.pair.Leaf.NotAfter
}

func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pair, nil
}
