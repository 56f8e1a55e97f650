package files

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
)

// kept counts what is stored for an org in addition to its files, in the same sums.
func (s *Store) kept(org string) capacity.Count {
	return capacity.CountAt(s.rdb, keptKey(org), sizesKey(org))
}

// Count counts bytes stored for an org under a name, for at most life. Bodies and responses of
// calls take space like uploads do. The error is ErrFull if the org has reached its limit; then
// nothing is counted. It is idempotent.
func (s *Store) Count(ctx context.Context, org, name string, bytes int64, life time.Duration) error {
	if s.opts.OrgBytes == 0 {
		return nil
	}
	in := capacity.Bound{Most: s.opts.OrgBytes, Share: 100}
	r := capacity.Reservation{Org: org, ID: name, Bytes: capacity.Bytes{Written: bytes}, Life: life}
	err := s.kept(org).Reserve(ctx, r, in)
	if _, ok := errors.AsType[*capacity.FullError](err); ok {
		return &FullError{Most: s.opts.OrgBytes}
	}
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	return nil
}

// Uncount ends what Count counted, because the bytes are gone. It is idempotent.
func (s *Store) Uncount(ctx context.Context, org string, names ...string) error {
	if s.opts.OrgBytes == 0 {
		return nil
	}
	if err := s.kept(org).Release(ctx, names...); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	return nil
}

// recordBytes is approximately what Redis needs for a file in addition to its name: its record
// and its list entries.
const recordBytes = 1 << 10

// admit counts a file's record towards its org's share of Redis memory. The record of a batch's
// output, which has been paid for, is counted only if there is space. The error may be a
// *capacity.FullError.
func (u *Upload) admit(ctx context.Context, f *File, life time.Duration) error {
	if u.s.opts.Memory == nil {
		return nil
	}
	bytes := capacity.Bytes{Written: recordBytes + int64(len(f.Name))}
	err := u.s.opts.Memory.Reserve(ctx, f.Org, f.ID, bytes, life)
	if f.Purpose == BatchOutput && capacity.IsFull(err) {
		return nil
	}
	return err
}

// release reverses admit.
func (s *Store) release(ctx context.Context, id string) error {
	if s.opts.Memory == nil {
		return nil
	}
	return s.opts.Memory.Release(ctx, id)
}
