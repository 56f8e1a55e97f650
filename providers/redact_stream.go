package providers

import (
	"bytes"
	"io"
	"slices"
)

// Writer redacts an answer with a success status that is streamed through it: everything from 4 KiB
// before the place where it first reports a failure. Text generated before that is not changed.
type Writer struct {
	redactor Redactor
	out      io.Writer
	held     []byte // its end may be part of a name, or of the word error
	failed   bool
}

// Writer returns a Writer to out, which must be closed to write the rest.
func (r Redactor) Writer(out io.Writer) *Writer { return &Writer{redactor: r, out: out} }

// Write implements io.Writer. It copies at most a few kilobytes at a time.
func (w *Writer) Write(p []byte) (int, error) {
	for piece := range slices.Chunk(p, nameMost) {
		w.held = append(w.held, piece...)
		text := w.held
		at := bytes.LastIndex(text, []byte(errorWord))
		if at >= 0 && len(text)-at < nameMost/2 { // its value may not have arrived yet
			text = text[:at]
		}
		if err := w.pass(mentionsError(text), nameMost); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Close writes the rest. It does not close the underlying io.Writer.
func (w *Writer) Close() error { return w.pass(mentionsError(w.held), 0) }

// pass writes everything except the last keep bytes.
func (w *Writer) pass(failed bool, keep int) error {
	w.failed = w.failed || failed
	if w.failed {
		w.held = []byte(w.redactor.Redact(string(w.held)))
	}
	n := len(w.held) - keep
	if n <= 0 {
		return nil
	}
	_, err := w.out.Write(w.held[:n])
	w.held = append(w.held[:0], w.held[n:]...)
	return err
}
