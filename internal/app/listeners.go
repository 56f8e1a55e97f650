package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/listen"
	"github.com/llmguard/llmguard/internal/spool"
)

// adminConnections bounds the connections of the operators' listener.
const adminConnections = 256

// certificateLook is the interval at which certificates are compared with their files.
const certificateLook = 10 * time.Second

// door is a listener with an optional certificate.
type door struct {
	net.Listener
	cert *listen.Certificate // nil: plain HTTP
}

// open listens at an address within limits, with TLS if there is a certificate. Requests
// are parsed strictly in both cases.
func (a *App) open(field, address string, limits listen.Limits, t config.TLS) (_ *door, err error) {
	d := &door{}
	if t.Enabled() {
		d.cert, err = listen.LoadCertificate(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", join(field, "tls"), err)
		}
	}
	plain, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: another process listens on %s; give each process on this machine its own address",
			join(field, "listen"), address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", join(field, "listen"), err)
	}
	d.Listener = listen.Limit(plain, limits)
	if d.cert == nil {
		d.Listener = listen.Strict(d.Listener)
	} else {
		d.Listener = listen.TLS(d.Listener, d.cert, a.cfg.Timeouts.ReadHeader, limits.Refused)
	}
	return d, nil
}

func join(section, field string) string {
	if section == "" {
		return field
	}
	return section + "." + field
}

// url returns the URL of the listener.
func (d *door) url() string {
	if d.cert != nil {
		return "https://" + d.Addr().String()
	}
	return "http://" + d.Addr().String()
}

// server returns a server for the listener. Its handler need not read the body of a request
// it refuses.
func (a *App) server(h http.Handler, read time.Duration) *http.Server {
	return &http.Server{
		Handler: listen.Bodies(h, read), ReadHeaderTimeout: read, IdleTimeout: a.cfg.Timeouts.Idle,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: listen.MaxStreams, WriteByteTimeout: a.cfg.Timeouts.Write},
	}
}

// certificates returns the certificates of both listeners, by the listener's name.
func (a *App) certificates() map[string]*listen.Certificate {
	out := map[string]*listen.Certificate{}
	for name, d := range map[string]*door{"calls": a.calls, "admin": a.admin} {
		if d != nil && d.cert != nil {
			out[name] = d.cert
		}
	}
	return out
}

// reloadCertificates reads the files of all certificates again.
func (a *App) reloadCertificates() error {
	var failed error
	for _, c := range a.certificates() {
		_, err := c.Reload()
		failed = errors.Join(failed, err)
	}
	return failed
}

// watchCertificates notices when a certificate is replaced, and exports when it expires.
func (a *App) watchCertificates(ctx context.Context, start func(func() error)) {
	for name, c := range a.certificates() {
		a.refused.Certificate(name, c)
		start(func() error { return quiet(c.Watch(ctx, certificateLook, a.log)) })
	}
}

// connectionMemory is about how much memory a connection with a slow stream takes, in
// bytes, not counting garbage. Connections get half of the memory.
const connectionMemory = 48 << 10

// connections returns the bounds of a listener.
func (a *App) connections(listener string, total, perAddress int) listen.Limits {
	if total == 0 {
		total = min(listen.DefaultTotal(), int(max(spool.Limit()/2/connectionMemory, 1)))
	}
	return listen.Limits{
		Total: total, PerAddress: perAddress, IPv6Prefix: a.cfg.Connections.IPv6Prefix,
		Exempt: func(ip netip.Addr) bool {
			return slices.ContainsFunc(a.cfg.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(ip) })
		},
		Refused: func(why string) { a.refused.Refused(listener, why) },
	}
}
