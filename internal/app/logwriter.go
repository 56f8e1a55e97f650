package app

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	logBuffer = 64 << 10
	logDelay  = 100 * time.Millisecond
)

// logWriter gathers the lines of a tenth of a second into one write: one line
// a call would otherwise be one system call a call. Lines of a process that is
// killed are lost for that long; the ledger does not depend on them.
type logWriter struct {
	mu    sync.Mutex
	buf   *bufio.Writer
	timer *time.Timer // running while something is buffered
	armed bool
}

func newLogWriter(w io.Writer) *logWriter {
	l := &logWriter{buf: bufio.NewWriterSize(w, logBuffer)}
	l.timer = time.AfterFunc(time.Hour, l.flush)
	l.timer.Stop()
	return l
}

// Write implements io.Writer; a line is never split between two writes unless
// it is larger than the buffer.
func (l *logWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(p) > l.buf.Available() {
		_ = l.buf.Flush() // the same error comes from the write below
	}
	if !l.armed {
		l.armed = true
		l.timer.Reset(logDelay)
	}
	return l.buf.Write(p)
}

func (l *logWriter) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = false
	_ = l.buf.Flush()
}

// promptHandler writes records of warnings and errors at once.
type promptHandler struct {
	slog.Handler
	out *logWriter
}

// Handle implements slog.Handler.
func (h promptHandler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		h.out.flush()
	}
	return err
}

// WithAttrs implements slog.Handler.
func (h promptHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return promptHandler{h.Handler.WithAttrs(attrs), h.out}
}

// WithGroup implements slog.Handler.
func (h promptHandler) WithGroup(name string) slog.Handler {
	return promptHandler{h.Handler.WithGroup(name), h.out}
}
