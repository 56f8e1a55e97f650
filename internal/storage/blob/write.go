package blob

import (
	"context"
	"fmt"
	"io"

	"github.com/llmguard/llmguard/internal/storage/seal"
)

// Writer writes one blob. Readers do not see it before Commit, which atomically replaces an
// earlier blob of that name. It is not safe for concurrent use. It ends with Commit or Abort;
// Abort after Commit does nothing.
type Writer struct {
	to     upload
	sealed *seal.StreamWriter // writes to to; nil: not encrypted
	cancel context.CancelFunc
	n      int64
	done   bool
}

// Create starts a blob. Cancelling ctx aborts it.
func (s *Store) Create(ctx context.Context, name string) (*Writer, error) {
	err := checkName(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	to, err := s.at.create(ctx, name, false)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("blob: create: %w", err)
	}
	w := &Writer{to: to, cancel: cancel}
	if ring := s.ring.Load(); ring != nil {
		w.sealed, err = ring.NewWriter(to, name)
	}
	if err != nil {
		w.Abort()
		return nil, fmt.Errorf("blob: create: %w", err)
	}
	return w, nil
}

// Write appends bytes.
func (w *Writer) Write(p []byte) (int, error) {
	into := io.Writer(w.to)
	if w.sealed != nil {
		into = w.sealed
	}
	n, err := into.Write(p)
	w.n += int64(n)
	return n, err
}

// Size returns the number of bytes written so far; the stored blob may be longer.
func (w *Writer) Size() int64 { return w.n }

// Commit stores the blob; when it returns, the blob is on disk.
func (w *Writer) Commit() error {
	if w.sealed != nil {
		if err := w.sealed.Close(); err != nil {
			w.Abort()
			return fmt.Errorf("blob: write: %w", err)
		}
	}
	w.done = true
	defer w.cancel()
	if err := w.to.commit(); err != nil {
		return fmt.Errorf("blob: write: %w", err)
	}
	return nil
}

// Abort discards what was written.
func (w *Writer) Abort() {
	if w.done {
		return
	}
	w.done = true
	w.cancel()
	w.to.abort()
}
