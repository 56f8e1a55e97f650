package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"gocloud.dev/blob"

	"github.com/llmguard/llmguard/seal"
)

// Writer writes one blob. Nobody sees it before Commit, which replaces an
// earlier blob of that name at once. It is for one goroutine, and ends with
// Commit or Abort; Abort after Commit does nothing.
type Writer struct {
	w      *blob.Writer
	sealed *seal.StreamWriter // before w; nil: not sealed
	cancel context.CancelFunc
	path   string // in a directory
	root   string // that directory
	n      int64
	done   bool
}

// An upload to S3 goes in parts of this size, this many at once: the memory it
// takes, however large the blob.
const (
	partSize  = 5 << 20
	partsOpen = 2
)

// Create begins a blob. Cancelling ctx aborts it.
func (s *Store) Create(ctx context.Context, name string) (*Writer, error) {
	ctx, cancel := context.WithCancel(ctx)
	options := &blob.WriterOptions{ContentType: "application/octet-stream", BufferSize: partSize, MaxConcurrency: partsOpen}
	b, err := s.bucket.NewWriter(ctx, name, options)
	for i := 0; i < 10 && s.dir && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist)); i++ {
		b, err = s.bucket.NewWriter(ctx, name, options) // a Remove took the directory between
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("blob: create: %w", err)
	}
	w := &Writer{w: b, cancel: cancel}
	if s.dir {
		w.path, w.root = s.path(name), filepath.Clean(s.where)
	}
	if ring := s.ring.Load(); ring != nil {
		if w.sealed, err = ring.NewWriter(b, name); err != nil {
			w.Abort()
			return nil, fmt.Errorf("blob: create: %w", err)
		}
	}
	return w, nil
}

// Write adds bytes.
func (w *Writer) Write(p []byte) (int, error) {
	into := io.Writer(w.w)
	if w.sealed != nil {
		into = w.sealed
	}
	n, err := into.Write(p)
	w.n += int64(n)
	return n, err
}

// Size is the number of bytes written so far; what is stored may be longer.
func (w *Writer) Size() int64 { return w.n }

// Commit makes the blob exist; when it returns the blob is on disk.
func (w *Writer) Commit() error {
	if w.sealed != nil {
		if err := w.sealed.Close(); err != nil {
			w.Abort()
			return fmt.Errorf("blob: write: %w", err)
		}
	}
	w.done = true
	defer w.cancel()
	if err := w.w.Close(); err != nil {
		return fmt.Errorf("blob: write: %w", err)
	}
	if w.path == "" {
		return nil
	}
	err := onDisk(w.path)
	for at := w.path; at != w.root && err == nil; { // directories above may be as new
		at = filepath.Dir(at)
		err = onDisk(at)
	}
	return err
}

// onDisk waits until a file, or the names in a directory, would outlive a power
// failure. Some network file systems refuse that for directories; their servers
// see to it.
func onDisk(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return fmt.Errorf("blob: %w", err)
	}
	return nil
}

// Abort forgets what was written.
func (w *Writer) Abort() {
	if w.done {
		return
	}
	w.done = true
	w.cancel()
	_ = w.w.Close() // tells only that it was cancelled
}
