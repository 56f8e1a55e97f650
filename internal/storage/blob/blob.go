// Package blob stores files outside Redis: in a directory shared by all processes, or in an
// S3-compatible bucket, encrypted if keys are configured. It handles only names and bytes;
// package files knows what a file is and who owns it.
package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/internal/storage/seal"
)

// ErrNotFound is returned for a blob that does not exist.
var ErrNotFound = errors.New("blob: no such blob")

// errExists is returned for an exclusive write to a name that is in use.
var errExists = errors.New("blob: already exists")

// backend is a directory or a bucket. Its callers have validated the names.
type backend interface {
	// open reads up to length bytes from an offset, or the rest if length is negative. At or
	// past the end it reads nothing.
	open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	// create starts a blob; with exclusive, commit fails if the blob exists.
	create(ctx context.Context, name string, exclusive bool) (upload, error)
	// remove deletes a blob; a missing blob is not an error.
	remove(ctx context.Context, name string) error
	// each calls fn for every blob whose name starts with prefix.
	each(ctx context.Context, prefix string, fn func(name string, at time.Time) error) error
	close()
}

// upload is a blob being written. It ends with one call of commit or abort; a failed commit
// leaves nothing behind.
type upload interface {
	io.Writer
	commit() error
	abort()
}

// Store stores blobs. It is safe for concurrent use. Names consist of [a-z0-9_-], separated by
// slashes.
type Store struct {
	at    backend
	where string
	ring  atomic.Pointer[seal.Ring]
	known atomic.Pointer[string] // last identity read
}

// Open opens the store in a directory, which is created with mode 0700 if missing, or at a URL
// s3://bucket?region=...&endpoint=... It does not connect yet.
func Open(_ context.Context, where string) (*Store, error) {
	if strings.Contains(where, "://") {
		at, err := openBucket(where)
		if err != nil {
			return nil, fmt.Errorf("blob: %w", err)
		}
		name, _, _ := strings.Cut(where, "?")
		return &Store{at: at, where: name}, nil
	}
	at, err := openDirectory(where)
	if err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	return &Store{at: at, where: where}, nil
}

// Seal sets the keys that encrypt blobs written from now on. Each blob is bound to its name, so
// a blob that was moved or modified cannot be read. Unencrypted blobs stay readable. With a nil
// ring new blobs are not encrypted, and reading encrypted ones returns errors that wrap
// seal.ErrNoKey. It may be called at any time.
func (s *Store) Seal(ring *seal.Ring) { s.ring.Store(ring) }

// String returns the directory, or the URL without its query.
func (s *Store) String() string { return s.where }

// Close closes the store; readers and writers must have been closed.
func (s *Store) Close() error {
	s.at.close()
	return nil
}

// Remove deletes a blob; a missing blob is not an error.
func (s *Store) Remove(ctx context.Context, name string) error {
	err := checkName(name)
	if err != nil {
		return err
	}
	if err := s.at.remove(ctx, name); err != nil {
		return fmt.Errorf("blob: remove: %w", err)
	}
	return nil
}

// RemoveAll deletes all blobs whose names start with prefix and that are at least as old as
// age. It returns their number.
func (s *Store) RemoveAll(ctx context.Context, prefix string, age time.Duration) (int, error) {
	before, n := time.Now().Add(-age), 0
	err := s.Each(ctx, prefix, func(name string, at time.Time) error {
		if at.After(before) {
			return nil
		}
		n++
		return s.Remove(ctx, name)
	})
	return n, err
}

// Each calls fn for every blob whose name starts with prefix, with the time it was written,
// until fn returns an error, which Each returns. fn may remove the blob.
func (s *Store) Each(ctx context.Context, prefix string, fn func(name string, at time.Time) error) error {
	return s.at.each(ctx, prefix, fn)
}

// sweepBatch is how many blobs Sweep asks about at a time.
const sweepBatch = 500

// Sweep deletes blobs whose names start with prefix and returns their number: of those that old
// selects by name and time, the ones that gone returns. It asks gone about many at a time.
func (s *Store) Sweep(
	ctx context.Context, prefix string, old func(name string, at time.Time) bool,
	gone func(ctx context.Context, names []string) ([]string, error),
) (n int, err error) {
	names := make([]string, 0, sweepBatch)
	look := func() error {
		if len(names) == 0 {
			return nil
		}
		found, err := gone(ctx, names)
		if err != nil {
			return err
		}
		for _, name := range found {
			if err := s.Remove(ctx, name); err != nil {
				return err
			}
			n++
		}
		names = names[:0]
		return nil
	}
	err = s.Each(ctx, prefix, func(name string, at time.Time) error {
		if !old(name, at) {
			return nil
		}
		names = append(names, name)
		if len(names) < sweepBatch {
			return nil
		}
		return look()
	})
	if err != nil {
		return n, err
	}
	return n, look()
}

// identityName is the blob that contains the identity of a store.
const identityName = "llmguard-store"

// Identity returns the random identity that the store was given when first used. This also
// tests writing and reading. Two processes that see the same identity share the store.
func (s *Store) Identity(ctx context.Context) (string, error) {
	for range 3 {
		id, err := s.readAll(ctx, identityName)
		if err == nil {
			s.known.Store(&id)
			return id, s.tryWriting(ctx)
		}
		if !errors.Is(err, ErrNotFound) {
			return "", fmt.Errorf("blob: read %s: %w", s.where, err)
		}
		err = s.writeAll(ctx, identityName, rand.Text(), true)
		if err != nil && !errors.Is(err, errExists) {
			return "", fmt.Errorf("blob: write %s: %w", s.where, err)
		}
	}
	return "", fmt.Errorf("blob: %s does not return what was written", s.where)
}

// Mounted reports whether a directory still has the identity that Identity last returned. An
// unmounted directory is empty or has another one. For a bucket, and before Identity was
// called, it returns true.
func (s *Store) Mounted() bool {
	dir, ok := s.at.(*directory)
	known := s.known.Load()
	if !ok || known == nil {
		return true
	}
	id, err := os.ReadFile(dir.path(identityName))
	return err == nil && string(id) == *known
}

// tryWriting writes a blob and removes it.
func (s *Store) tryWriting(ctx context.Context) error {
	name := "probe/" + strings.ToLower(rand.Text())
	if err := s.writeAll(ctx, name, name, false); err != nil {
		return fmt.Errorf("blob: write %s: %w", s.where, err)
	}
	return s.Remove(ctx, name)
}

// readAll reads a small unencrypted blob.
func (s *Store) readAll(ctx context.Context, name string) (string, error) {
	r, err := s.at.open(ctx, name, 0, -1)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

// writeAll writes a small unencrypted blob.
func (s *Store) writeAll(ctx context.Context, name, text string, exclusive bool) error {
	w, err := s.at.create(ctx, name, exclusive)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		w.abort()
		return err
	}
	return w.commit()
}

// checkName rejects names that would escape the store, or that a directory could not store
// unchanged.
func checkName(name string) error {
	if name == "." || !fs.ValidPath(name) {
		return fmt.Errorf("blob: %q is not a blob's name", name)
	}
	return nil
}

func named(what string, err error) error {
	if errors.Is(err, ErrNotFound) {
		return ErrNotFound
	}
	return fmt.Errorf("blob: %s: %w", what, err)
}
