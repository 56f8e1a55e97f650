package app

import (
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

// CheckMachine finds what a configuration needs that this machine lacks: certificates,
// writable directories, and ports. level is the severity of these findings: where the
// configuration is only read, as in CI, nothing of that needs to exist. running reports
// whether llmguard already runs here with this configuration and therefore uses the ports.
func CheckMachine(cfg *config.Config, level diagnose.Level, running func() bool) []diagnose.Finding {
	m := &machine{cfg: cfg, level: level}
	m.certificate("tls", cfg.TLS)
	m.certificate("admin.tls", cfg.Admin.TLS)
	m.redisTLS()
	const own = "Make it writable for the user that llmguard runs as, or set another directory."
	m.directory("store.journal_dir", cfg.Store.JournalDir, own)
	m.directory("ledger.export_dir", cfg.Ledger.ExportDir, own)
	if dir := cfg.Files.Store; !strings.Contains(dir, "://") {
		m.directory("files.store", dir, own)
	}
	if dir := cfg.Finance.Export.To; !strings.Contains(dir, "://") {
		m.directory("finance.export.to", dir, own)
	}
	m.directory("memory.spool", os.TempDir(),
		"Set TMPDIR to a directory on disk: bodies and answers above 1 MiB are buffered there.")
	m.ports(running)
	return m.out
}

type machine struct {
	cfg   *config.Config
	level diagnose.Level
	out   []diagnose.Finding
}

func (m *machine) add(level diagnose.Level, path, what, fix string) {
	m.out = append(m.out, diagnose.Finding{
		Area: "machine", Level: level, What: path + ": " + what, Fix: fix,
		File: m.cfg.Name, Path: path,
	})
}

const readable = "Check that it exists and that the user llmguard runs as can read it."

func (m *machine) certificate(path string, t config.TLS) {
	if !t.Enabled() {
		return
	}
	for name, file := range map[string]string{path + ".cert_file": t.CertFile, path + ".key_file": t.KeyFile} {
		if _, err := os.ReadFile(file); err != nil {
			m.add(m.level, name, "cannot be read: "+err.Error(), readable)
			return
		}
	}
	if _, err := listen.LoadCertificate(t.CertFile, t.KeyFile); err != nil {
		m.add(m.level, path+".cert_file", err.Error(), "Both must be PEM files, and the key must belong to the first "+
			"certificate.")
	}
}

func (m *machine) redisTLS() {
	t := m.cfg.Redis.TLS
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		switch {
		case err != nil:
			m.add(m.level, "redis.tls.ca_file", "cannot be read: "+err.Error(), readable)
		case !x509.NewCertPool().AppendCertsFromPEM(text):
			m.add(m.level, "redis.tls.ca_file", "contains no certificate", "It must be a PEM file of CA certificates.")
		}
	}
	if t.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
			m.add(m.level, "redis.tls.cert_file", "cannot be used: "+err.Error(), readable)
		}
	}
}

// directory checks whether a directory is writable or can be created. It writes nothing.
func (m *machine) directory(path, dir, fix string) {
	if dir == "" {
		return
	}
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at):
			continue // it will be created, so its parent counts
		case err == nil && !info.IsDir():
			err = errors.New(at + " is not a directory")
		case err == nil:
			err = writable(at)
		}
		if err != nil {
			m.add(m.level, path, fmt.Sprintf("%s is not writable: %v", dir, err), fix)
		}
		return
	}
}

// ports checks whether the listeners can be opened.
func (m *machine) ports(running func() bool) {
	asked, ours := false, false
	for _, l := range []struct{ path, address string }{{"listen", m.cfg.Listen}, {"admin.listen", m.cfg.Admin.Listen}} {
		err := free(l.address)
		if err == nil {
			continue
		}
		if !asked {
			asked, ours = true, running()
		}
		if ours {
			m.add(diagnose.OK, l.path, l.address+" is in use: llmguard already runs here with this file", "")
			continue
		}
		m.add(m.level, l.path, fmt.Sprintf("%s cannot be opened: %v", l.address, plainError(err)), openable(err))
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
