package files

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
)

// kept counts what is kept for an org beside its files, in the same sums.
func (s *Store) kept(org string) capacity.Count {
	return capacity.CountAt(s.rdb, keptKey(org), sizesKey(org))
}

// Count counts bytes that are kept for an org under a name, for as long as they last at
// most: bodies and answers of calls, which take room as uploads do. The error is ErrFull
// when the org stores as much as it may; then nothing is counted. It is idempotent.
func (s *Store) Count(ctx context.Context, org, name string, bytes int64, life time.Duration) error {
	if s.opts.OrgBytes == 0 {
		return nil
	}
	in := capacity.Bound{Most: s.opts.OrgBytes, Share: 100}
	r := capacity.Reservation{Org: org, ID: name, Bytes: capacity.Bytes{Written: bytes}, Life: life}
	err := s.kept(org).Reserve(ctx, r, in)
	var full *capacity.FullError
	if errors.As(err, &full) {
		return &FullError{Most: s.opts.OrgBytes}
	}
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	return nil
}

// Uncount ends what Count counted: the bytes are gone. It is idempotent.
func (s *Store) Uncount(ctx context.Context, org string, names ...string) error {
	if s.opts.OrgBytes == 0 {
		return nil
	}
	if err := s.kept(org).Release(ctx, names...); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	return nil
}
