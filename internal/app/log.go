package app

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/llmguard/llmguard/config"
)

// Logger builds the process's logger, its level, which may be changed, and a function that
// flushes buffered lines at the end.
func Logger(c config.Log, w io.Writer) (*slog.Logger, *slog.LevelVar, func()) {
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level.Set(slog.LevelInfo)
	}
	h := newLogHandler(w, level, c.Format == "text")
	return slog.New(h), level, h.out.flush
}

// logHandler writes many records in one write, and flushes after warnings and errors.
type logHandler struct {
	slog.Handler
	out *logWriter
}

// newLogHandler returns a logHandler that writes to w; text selects slog's text format
// instead of JSON.
func newLogHandler(w io.Writer, level slog.Leveler, text bool) *logHandler {
	h := &logHandler{out: newLogWriter(w)}
	o := &slog.HandlerOptions{Level: level}
	h.Handler = slog.NewJSONHandler(h.out, o)
	if text {
		h.Handler = slog.NewTextHandler(h.out, o)
	}
	return h
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		h.out.flush()
	}
	return err
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{Handler: h.Handler.WithAttrs(attrs), out: h.out}
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{Handler: h.Handler.WithGroup(name), out: h.out}
}

const (
	logBuffered = 64 << 10 // bytes
	logDelay    = 100 * time.Millisecond
)

// logWriter combines the lines of a tenth of a second into one write, because one line per
// call would be one system call per call. If the process is killed, the lines of that time
// are lost; the ledger does not depend on them.
type logWriter struct {
	mu    sync.Mutex
	buf   *bufio.Writer
	timer *time.Timer // running while something is buffered
	armed bool
}

func newLogWriter(w io.Writer) *logWriter {
	l := &logWriter{buf: bufio.NewWriterSize(w, logBuffered)}
	l.timer = time.AfterFunc(time.Hour, l.flush)
	l.timer.Stop()
	return l
}

// Write implements io.Writer. It never splits a line between two writes unless the line is
// larger than the buffer.
func (l *logWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(p) > l.buf.Available() {
		_ = l.buf.Flush() // the write below returns the same error
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
