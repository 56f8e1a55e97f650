// Package accesslog writes the process's log as [log/slog] does, a line a record in JSON
// or as text: many lines in one write, and warnings and errors at once.
package accesslog

import (
	"context"
	"io"
	"log/slog"
)

// Handler is a slog.Handler. It is safe for concurrent use.
type Handler struct {
	slog.Handler
	out *writer
}

// New returns a Handler that writes to w; text is slog's other format than JSON.
func New(w io.Writer, level slog.Leveler, text bool) *Handler {
	h := &Handler{out: newWriter(w)}
	o := &slog.HandlerOptions{Level: level}
	h.Handler = slog.NewJSONHandler(h.out, o)
	if text {
		h.Handler = slog.NewTextHandler(h.out, o)
	}
	return h
}

// Flush writes what is still gathered.
func (h *Handler) Flush() { h.out.flush() }

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		h.out.flush()
	}
	return err
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{Handler: h.Handler.WithAttrs(attrs), out: h.out}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{Handler: h.Handler.WithGroup(name), out: h.out}
}
