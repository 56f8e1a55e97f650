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

// ReserveRecord admits the record of an idempotency key of the org before the call is made
// whose id is given. KeepAnswer, KeepRecord or DropRecord end the reservation, at the
// latest it ends after ttl. The error is a *FullError or of Redis.
func (q *Queue) ReserveRecord(ctx context.Context, org, id string, ttl time.Duration) error {
	err := q.memory.Reserve(ctx, org, id, capacity.Bytes{Reserved: keyBytes}, ttl)
	var full *capacity.FullError
	if errors.As(err, &full) {
		return refusal(full)
	}
	if err != nil {
		return fmt.Errorf("queue: reserve record: %w", err)
	}
	return nil
}

// KeepRecord counts a record that stays for ttl without an answer.
func (q *Queue) KeepRecord(ctx context.Context, id string, ttl time.Duration) error {
	return q.memory.Settle(ctx, capacity.Settled{ID: id, Written: keyBytes, Life: ttl})
}

// DropRecord gives back what was admitted for a record that does not stay.
func (q *Queue) DropRecord(ctx context.Context, id string) error { return q.memory.Release(ctx, id) }
