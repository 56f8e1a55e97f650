// Package blob keeps files outside Redis: in a directory that all processes
// share, or in an S3-compatible bucket, encrypted when it was given keys. It knows
// names and bytes only; what a file is, and whose, is in package files.
package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/s3blob" // registers s3://
	"gocloud.dev/gcerrors"

	"github.com/llmguard/llmguard/seal"
)

// ErrNotFound is returned for a blob that does not exist.
var ErrNotFound = errors.New("blob: no such blob")

// Store is a place for blobs. It is safe for concurrent use. Names are of
// [a-z0-9_-], with slashes between.
type Store struct {
	bucket *blob.Bucket
	where  string
	ring   atomic.Pointer[seal.Ring]
	dir    bool                   // where is a directory
	known  atomic.Pointer[string] // the identity
}

// Open opens the store in a directory, which is made with mode 0700 if it is
// missing, or at a URL s3://bucket?region=...&endpoint=... It connects to
// nothing yet.
func Open(ctx context.Context, where string) (*Store, error) {
	if strings.Contains(where, "://") {
		bucket, err := blob.OpenBucket(ctx, where)
		if err != nil {
			return nil, fmt.Errorf("blob: %w", err)
		}
		name, _, _ := strings.Cut(where, "?")
		return &Store{bucket: bucket, where: name}, nil
	}
	bucket, err := fileblob.OpenBucket(where, &fileblob.Options{
		CreateDir: true, DirFileMode: 0o700,
		NoTempDir: true, // a rename into place has to stay on one file system
		Metadata:  fileblob.MetadataDontWrite,
	})
	if err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	return &Store{bucket: bucket, where: where, dir: true}, nil
}

// Seal has blobs sealed from now on, each bound to its name, so that moved or
// changed it cannot be read. Blobs that are not sealed stay readable. A nil ring
// ends it; sealed blobs are then errors that wrap seal.ErrNoKey. It may be called
// at any time.
func (s *Store) Seal(ring *seal.Ring) { s.ring.Store(ring) }

// String is the directory, or the URL without its query.
func (s *Store) String() string { return s.where }

// Close ends the store; readers and writers must have been closed.
func (s *Store) Close() error { return s.bucket.Close() }

// Remove deletes a blob; one that does not exist is no error.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := s.bucket.Delete(ctx, name); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return fmt.Errorf("blob: remove: %w", err)
	}
	if s.dir && strings.Count(name, "/") > 1 {
		_ = os.Remove(filepath.Dir(s.path(name))) // fails unless it is empty
	}
	return nil
}

// path is the file of a blob in a directory.
func (s *Store) path(name string) string { return filepath.Join(s.where, filepath.FromSlash(name)) }

// RemoveAll deletes all blobs whose names begin with prefix and that are at
// least as old as age. It tells how many there were.
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

// Each calls fn for every blob whose name begins with prefix, with the time it
// was written, until fn returns an error, which it returns. Fn may remove it.
func (s *Store) Each(ctx context.Context, prefix string, fn func(name string, at time.Time) error) error {
	if s.dir {
		return s.walk(ctx, prefix, fn)
	}
	list := s.bucket.List(&blob.ListOptions{Prefix: prefix})
	for {
		object, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("blob: list: %w", err)
		}
		if err := fn(object.Key, object.ModTime); err != nil {
			return err
		}
	}
}

// walk is Each in a directory. The bucket would walk it anew for every page.
func (s *Store) walk(ctx context.Context, prefix string, fn func(name string, at time.Time) error) error {
	root := s.path(prefix[:strings.LastIndex(prefix, "/")+1])
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("blob: list: %w", err)
		}
		name, err := filepath.Rel(s.where, path)
		if err != nil {
			return fmt.Errorf("blob: list: %w", err)
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if path != root && !strings.HasPrefix(name+"/", prefix) {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if !strings.HasPrefix(name, prefix) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("blob: list: %w", err)
		}
		return fn(name, info.ModTime())
	})
}

// identityName is the blob that tells one store from another.
const identityName = "llmguard-store"

// Identity returns the random name that the store was given when it was first
// used, and thereby tries to write and to read it. Two processes that see the
// same identity share the store.
func (s *Store) Identity(ctx context.Context) (string, error) {
	for range 3 {
		id, err := s.bucket.ReadAll(ctx, identityName)
		if err == nil {
			name := string(id)
			s.known.Store(&name)
			return name, s.tryWriting(ctx)
		}
		if gcerrors.Code(err) != gcerrors.NotFound {
			return "", fmt.Errorf("blob: read %s: %w", s.where, err)
		}
		err = s.bucket.WriteAll(ctx, identityName, []byte(rand.Text()), &blob.WriterOptions{IfNotExist: true})
		if err != nil && gcerrors.Code(err) != gcerrors.FailedPrecondition {
			return "", fmt.Errorf("blob: write %s: %w", s.where, err)
		}
	}
	return "", fmt.Errorf("blob: %s does not keep what is written", s.where)
}

// Mounted reports whether a directory still has the identity that Identity
// returned last: one that is not mounted has nothing in it, or another one. It is
// true for a bucket, and before Identity.
func (s *Store) Mounted() bool {
	known := s.known.Load()
	if !s.dir || known == nil {
		return true
	}
	id, err := os.ReadFile(s.path(identityName))
	return err == nil && string(id) == *known
}

// tryWriting writes a blob and takes it away again.
func (s *Store) tryWriting(ctx context.Context) error {
	name := "probe/" + strings.ToLower(rand.Text())
	if err := s.bucket.WriteAll(ctx, name, []byte(name), nil); err != nil {
		return fmt.Errorf("blob: write %s: %w", s.where, err)
	}
	return s.Remove(ctx, name)
}

func named(what string, err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		return ErrNotFound
	}
	return fmt.Errorf("blob: %s: %w", what, err)
}
