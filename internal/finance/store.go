package finance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/storage/blob"
)

// Store is where exports are written: a directory, or objects of a bucket below a prefix. It is safe
// for concurrent use.
type Store struct {
	blobs  *blob.Store
	prefix string
}

// OpenStore opens a directory, which is created if it is missing, or s3://bucket/prefix?region=... It
// does not connect yet.
func OpenStore(ctx context.Context, to string) (*Store, error) {
	s := &Store{}
	if strings.HasPrefix(to, "s3://") {
		u, err := url.Parse(to)
		if err != nil || u.Host == "" {
			return nil, errors.New("expected a URL such as s3://bucket/prefix?region=eu-west-1")
		}
		s.prefix = strings.Trim(u.Path, "/")
		if s.prefix != "" {
			s.prefix += "/"
		}
		u.Path = ""
		to = u.String()
	}
	var err error
	s.blobs, err = blob.Open(ctx, to)
	return s, err
}

// Close closes the store.
func (s *Store) Close() error { return s.blobs.Close() }

// Put writes a file completely or not at all, in place of one of the same name, and returns where.
func (s *Store) Put(ctx context.Context, name string, write func(io.Writer) error) (where string, err error) {
	w, err := s.blobs.Create(ctx, s.prefix+name)
	if err != nil {
		return "", err
	}
	defer w.Abort()
	if err := write(w); err != nil {
		return "", err
	}
	if err := w.Commit(); err != nil {
		return "", err
	}
	return strings.TrimRight(s.blobs.String(), "/") + "/" + s.prefix + name, nil
}

// FileName returns the name of an export's file.
func (o *FocusOptions) FileName(format string) string {
	return fmt.Sprintf("focus-%s-%s.%s", o.Org, o.Month, format)
}

// Leftovers returns the names of the Parquet files, which versions before 0.2.0 wrote, in a directory or
// bucket.
func Leftovers(ctx context.Context, to string) (names []string, err error) {
	if !strings.HasPrefix(to, "s3://") { // OpenStore would create the directory
		return fs.Glob(os.DirFS(to), "focus-*.parquet")
	}
	s, err := OpenStore(ctx, to)
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // nothing was written
	err = s.blobs.Each(ctx, s.prefix+"focus-", func(name string, _ time.Time) error {
		if strings.HasSuffix(name, ".parquet") {
			names = append(names, name)
		}
		return nil
	})
	return names, err
}
