package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/seal"
)

// Bodies outside Redis are blobs cache/<org>/<id>, which the blob store encrypts. Redis holds the
// answer's head with a ref, written after the blob: a blob without it is never read, and swept.
const bodyPrefix = "cache/"

// BlobPrefix is how the names of all blobs of an org's answers begin.
func BlobPrefix(org string) string { return bodyPrefix + org + "/" }

func bodyName(org, id string) string { return BlobPrefix(org) + id }

// keyOfBody returns the key of the answer that a blob belongs to, or "" if it is not a body. A
// writer that was killed leaves <id>.<digits>.tmp, which belongs to none: partial is true.
func keyOfBody(name string) (key string, partial bool) {
	org, id, ok := strings.Cut(strings.TrimPrefix(name, bodyPrefix), "/")
	id, _, partial = strings.Cut(id, ".")
	if !ok || !strings.HasPrefix(name, bodyPrefix) || id == "" || strings.Trim(id, "0123456789abcdef") != "" {
		return "", false
	}
	return answerKey(org, id), partial
}

// ref identifies a body by its size and SHA-256.
type ref struct {
	Size int64  `json:"n"`
	Sum  []byte `json:"sha256"`
}

func refOf(body []byte) *ref {
	sum := sha256.Sum256(body)
	return &ref{Size: int64(len(body)), Sum: sum[:]}
}

// errUnmounted is returned while files.store is a different directory than at startup.
var errUnmounted = errors.New("files.store has changed since the start: check that it is mounted")

// maxReads bounds the bodies being read at a time: a network file system may hang, and then its
// reads cannot be cancelled.
const maxReads = 64

// bodies are the bodies in files.store. It is safe for concurrent use.
type bodies struct {
	blobs   *blob.Store // nil: none can be read
	reading chan struct{}
}

func newBodies(blobs *blob.Store) *bodies { return &bodies{blobs, make(chan struct{}, maxReads)} }

// write writes a body; when it returns, the body is on disk.
func (b *bodies) write(ctx context.Context, name string, body []byte) error {
	if !b.blobs.Mounted() {
		return errUnmounted
	}
	w, err := b.blobs.Create(ctx, name)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(body); err != nil {
		return err
	}
	return w.Commit()
}

// remove deletes bodies of answers that are gone. The sweep deletes those that remain on failure.
func (b *bodies) remove(ctx context.Context, names ...string) {
	for _, name := range names {
		if b.blobs.Remove(ctx, name) != nil {
			return
		}
	}
}

// read returns the body of a ref, or nil if it is missing, damaged or replaced. It returns when
// ctx ends, even if the file system hangs.
func (b *bodies) read(ctx context.Context, name string, r *ref) ([]byte, error) {
	if b.blobs == nil {
		return nil, nil
	}
	select {
	case b.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("cache: read body: %w", context.Cause(ctx))
	}
	type result struct {
		body []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-b.reading }()
		body, err := b.readAll(ctx, name, r)
		done <- result{body, err}
	}()
	select {
	case got := <-done:
		return got.body, got.err
	case <-ctx.Done():
		return nil, fmt.Errorf("cache: read body: %w", context.Cause(ctx))
	}
}

func (b *bodies) readAll(ctx context.Context, name string, r *ref) ([]byte, error) {
	from, err := b.blobs.Open(ctx, name, 0)
	if errors.Is(err, blob.ErrNotFound) && !b.blobs.Mounted() {
		return nil, errUnmounted
	}
	if unreadable(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cache: read body: %w", err)
	}
	defer from.Close()
	body, err := io.ReadAll(io.LimitReader(from, r.Size+1))
	if unreadable(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cache: read body: %w", err)
	}
	if got := refOf(body); got.Size != r.Size || !bytes.Equal(got.Sum, r.Sum) {
		return nil, nil
	}
	return body, nil
}

// unreadable reports whether a body is gone for good.
func unreadable(err error) bool {
	return errors.Is(err, blob.ErrNotFound) || errors.Is(err, seal.ErrBroken) || errors.Is(err, seal.ErrNoKey)
}
