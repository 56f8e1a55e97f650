package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
)

// keyBytes is about what Redis needs for the record of an idempotency key.
const keyBytes = 640

// Records admits the records of idempotency keys into the memory of the store.
type Records struct{ memory *capacity.Memory }

// Reserve admits the record of an idempotency key of the org before the call is made
// whose id is given. Queue.KeepAnswer, Keep or Drop end the reservation, at the
// latest it ends after ttl. The error is a *FullError or of Redis.
func (r *Records) Reserve(ctx context.Context, org, id string, ttl time.Duration) error {
	err := r.memory.Reserve(ctx, org, id, capacity.Bytes{Reserved: keyBytes}, ttl)
	if full, ok := errors.AsType[*capacity.FullError](err); ok {
		return refusal(full)
	}
	if err != nil {
		return fmt.Errorf("queue: reserve record: %w", err)
	}
	return nil
}

// Keep counts a record that stays for ttl without an answer.
func (r *Records) Keep(ctx context.Context, id string, ttl time.Duration) error {
	return r.memory.Settle(ctx, capacity.Settled{ID: id, Written: keyBytes, Life: ttl})
}

// Drop gives back what was admitted for a record that does not stay.
func (r *Records) Drop(ctx context.Context, id string) error { return r.memory.Release(ctx, id) }
