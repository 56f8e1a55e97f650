package checks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/listen"
)

// certificates looks for certificates that cannot be read or used.
func certificates(_ context.Context, e *examination, r *diagnose.Report) {
	e.certificate(r, "tls", e.cfg.TLS)
	e.certificate(r, "admin.tls", e.cfg.Admin.TLS)
	t := e.cfg.Redis.TLS
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		switch {
		case err != nil:
			r.At("redis.tls.ca_file", e.lacking, "cannot be read: "+err.Error(), readable)
		case !x509.NewCertPool().AppendCertsFromPEM(text):
			r.At("redis.tls.ca_file", e.lacking, "contains no certificate", "It must be a PEM file of CA certificates.")
		}
	}
	if t.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
			r.At("redis.tls.cert_file", e.lacking, "cannot be used: "+err.Error(), readable)
		}
	}
}

const readable = "Check that it exists and that the user llmguard runs as can read it."

func (e *examination) certificate(r *diagnose.Report, path string, t config.TLS) {
	if !t.Enabled() {
		return
	}
	for _, one := range [][2]string{{path + ".cert_file", t.CertFile}, {path + ".key_file", t.KeyFile}} {
		if _, err := os.ReadFile(one[1]); err != nil {
			r.At(one[0], e.lacking, "cannot be read: "+err.Error(), readable)
			return
		}
	}
	if _, err := listen.LoadCertificate(t.CertFile, t.KeyFile); err != nil {
		r.At(path+".cert_file", e.lacking, err.Error(),
			"Both must be PEM files, and the key must belong to the first certificate.")
	}
}

// directories checks whether directories are writable or can be created. It writes nothing.
func directories(_ context.Context, e *examination, r *diagnose.Report) {
	const own = "Make it writable for the user that llmguard runs as, or set another directory."
	const temporary = "Set TMPDIR to a directory on disk: bodies and answers above 1 MiB are buffered there."
	for _, d := range []struct{ path, dir, fix string }{
		{"store.journal_dir", e.cfg.Store.JournalDir, own},
		{"ledger.export_dir", e.cfg.Ledger.ExportDir, own},
		{"files.store", e.cfg.Files.Store, own},
		{"finance.export.to", e.cfg.Finance.Export.To, own},
		{"memory.spool", os.TempDir(), temporary},
	} {
		if d.dir == "" || strings.Contains(d.dir, "://") {
			continue
		}
		if err := creatable(d.dir); err != nil {
			r.At(d.path, e.lacking, fmt.Sprintf("%s is not writable: %v", d.dir, err), d.fix)
		}
	}
}

// creatable reports why a directory is not writable, or cannot be created.
func creatable(dir string) error {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at):
			continue // it will be created, so its parent counts
		case err == nil && !info.IsDir():
			return errors.New(at + " is not a directory")
		case err == nil:
			return writable(at)
		}
		return err
	}
}

// ports checks whether the listeners can be opened.
func ports(ctx context.Context, e *examination, r *diagnose.Report) {
	for _, l := range [][2]string{{"listen", e.cfg.Listen}, {"admin.listen", e.cfg.Admin.Listen}} {
		path, address := l[0], l[1]
		err := free(address)
		if err == nil {
			continue
		}
		if e.running(ctx, path) {
			r.At(path, diagnose.OK, address+" is in use by this deployment", "")
			continue
		}
		r.At(path, e.lacking, fmt.Sprintf("%s cannot be opened: %v", address, plainError(err)), openable(err))
	}
}

// openable returns the fix for a listener that cannot be opened.
func openable(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "No interface of this machine has this address. Use one that `ip address` lists, or 0.0.0.0 for all."
	case errors.Is(err, fs.ErrPermission):
		return "Choose a port from 1024 up, or give llmguard CAP_NET_BIND_SERVICE."
	case errors.Is(err, syscall.EADDRINUSE):
		return "Stop the process that uses the port (`ss -ltnp` shows it), or choose another."
	}
	return "Choose a host and port of this machine."
}

// free opens a listener for a moment.
func free(address string) error {
	l, err := net.Listen("tcp", address) //nolint:noctx // closed immediately
	if err != nil {
		return err
	}
	return l.Close()
}

// plainError returns the system's error without the operation.
func plainError(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}
