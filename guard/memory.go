package guard

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
)

// records admits the small records that callers create to the memory of Redis. Without a Memory it admits everything.
type records struct{ memory *capacity.Memory }

// memoryID returns the id of a record of an org in capacity.
func memoryID(org, record string) string { return org + " " + record }

// Reserve admits the bytes of a record before it is written; a repetition replaces them. The error is a
// *capacity.FullError or comes from Redis.
func (r *records) Reserve(ctx context.Context, org, id string, bytes int64, life time.Duration) error {
	if r.memory == nil {
		return nil
	}
	return r.memory.Reserve(ctx, org, id, capacity.Bytes{Written: bytes}, life)
}

// Admit is Reserve for a record that is never released.
func (r *records) Admit(ctx context.Context, org string, bytes int64, life time.Duration) error {
	return r.memory.Admit(ctx, org, bytes, life)
}

// Settle counts what remains of a record. What cannot be settled counts until it expires.
func (r *records) Settle(ctx context.Context, s capacity.Settled) {
	if r.memory != nil {
		_ = r.memory.Settle(ctx, s)
	}
}

// Release ends the count of a record that was not written.
func (r *records) Release(ctx context.Context, id string) {
	if r.memory != nil {
		_ = r.memory.Release(ctx, id)
	}
}

// AdmitRecord admits a small record of an org to the memory of Redis before it is written. A repetition replaces what
// the id had. The error is a *capacity.FullError or comes from Redis.
func (g *Guard) AdmitRecord(ctx context.Context, org, id string, bytes int64, life time.Duration) error {
	return g.records.Reserve(ctx, org, id, bytes, life)
}
