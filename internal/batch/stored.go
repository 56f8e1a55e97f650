package batch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/storage/files"
)

// forgetMost bounds the records that are deleted when a batch ends.
const forgetMost = 100

// keptKey lists an org's ended batches that still have records, as "user id" by the Unix
// second of their creation.
func keptKey(org string) string { return "lg:{" + org + "}:endedbatches" }

// remember lists a batch that has ended. An org keeps a limited number of ended batches;
// the oldest are forgotten.
func (s *Store) remember(ctx context.Context, b *Batch) error {
	key := keptKey(b.Org)
	pipe := s.rdb.Pipeline()
	pipe.ZAdd(ctx, key, redisconn.Z{Score: float64(b.Created.Unix()), Member: b.User + " " + b.ID})
	pipe.ZRemRangeByScore(ctx, key, "-inf", fmt.Sprint(time.Now().Add(-recordLife).Unix()))
	pipe.Expire(ctx, key, recordLife)
	count := pipe.ZCard(ctx, key)
	if err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("batch: remember: %w", err)
	}
	over := count.Val() - int64(s.bounds.Kept)
	if s.bounds.Kept == 0 || over <= 0 {
		return nil
	}
	oldest, err := s.rdb.ZRange(ctx, key, 0, min(over, forgetMost)-1).Result()
	if err != nil {
		return fmt.Errorf("batch: forget: %w", err)
	}
	for _, member := range oldest {
		user, id, _ := strings.Cut(member, " ")
		if err := s.forget(ctx, b.Org, user, id); err != nil {
			return err
		}
	}
	return nil
}

// ErrUnfinished is returned for the deletion of a batch that has not ended, or of which the end is still being
// reported.
var ErrUnfinished = errors.New("batch: it has not ended")

// Delete deletes a batch that has ended, and the files with its results.
func (s *Store) Delete(ctx context.Context, b *Batch) error {
	err := s.rdb.ZScore(ctx, openKey, b.ID).Err()
	switch {
	case err == nil || !b.Status.Terminal():
		return ErrUnfinished
	case !redisconn.IsNil(err):
		return fmt.Errorf("batch: delete: %w", err)
	}
	for _, id := range []string{b.Output, b.Errors} {
		err := s.files.Remove(ctx, b.filesOwner(), id)
		if err != nil && !errors.Is(err, files.ErrNotFound) {
			return err
		}
	}
	return s.forget(ctx, b.Org, b.User, b.ID)
}

func (s *Store) forget(ctx context.Context, org, user, id string) error {
	if err := s.rdb.Unlink(ctx, recordKey(id)).Err(); err != nil {
		return fmt.Errorf("batch: forget: %w", err)
	}
	if err := s.release(ctx, id); err != nil {
		return err
	}
	pipe := s.rdb.Pipeline()
	pipe.ZRem(ctx, indexKey(org, user), id)
	pipe.ZRem(ctx, keptKey(org), user+" "+id)
	if err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("batch: forget: %w", err)
	}
	return nil
}
