package app

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// countedWrites counts the writes that reach it.
type countedWrites struct {
	mu   sync.Mutex
	n    int
	text bytes.Buffer
}

func (w *countedWrites) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	return w.text.Write(p)
}

func (w *countedWrites) state() (int, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n, w.text.String()
}

func TestLoggerGathersLines(t *testing.T) {
	var out countedWrites
	h := newLogHandler(&out, slog.LevelInfo, false)
	log := slog.New(h)
	for range 100 {
		log.Info("call")
	}
	log.With(slog.Int("a", 1)).Error("trouble")
	n, text := out.state()
	if n > 3 || strings.Count(text, "\n") != 101 || !strings.Contains(text, "trouble") {
		t.Errorf("an error came with %d writes and %d lines, want all lines in one write, or in two or three where a flush came between", n, strings.Count(text, "\n"))
	}
	log.Info("later")
	for range 6000 {
		if _, text = out.state(); strings.Contains(text, "later") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(text, "later") {
		t.Error("a line was never written without a flush")
	}
	log.Info("last")
	h.out.flush()
	if _, text = out.state(); !strings.Contains(text, "last") {
		t.Error("flush left a line behind")
	}
	log.Info("long", slog.String("text", strings.Repeat("x", 2*logBuffered)))
	h.out.flush()
	if _, text = out.state(); strings.Count(text, "\n") != 104 {
		t.Errorf("%d lines, want 104", strings.Count(text, "\n"))
	}
}
