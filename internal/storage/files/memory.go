package files

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
)

// recordBytes is about what Redis needs for a file besides its name: its record and its
// places in lists.
const recordBytes = 1 << 10

// admit counts a file's record in its org's share of Redis's memory. That of a batch's
// output, which is paid for, is counted where there is room. The error may be a
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

// release ends what admit counted.
func (s *Store) release(ctx context.Context, id string) error {
	if s.opts.Memory == nil {
		return nil
	}
	return s.opts.Memory.Release(ctx, id)
}
