package population

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// batch is how many keys are measured per pipeline.
const batch = 500

// memory visits all keys and adds up their memory, by MEMORY USAGE with all elements sampled.
func (s *simulation) memory(ctx context.Context, r *Result) error {
	var users, tombstones, dead, ledger, entries int64
	var cursor uint64
	for {
		keys, next, err := s.rdb.Scan(ctx, cursor, "lg:*", batch).Result()
		if err != nil {
			return err
		}
		pipe := s.rdb.Pipeline()
		sizes := make([]*redis.IntCmd, len(keys))
		counts := make([]*redis.IntCmd, len(keys))
		for i, key := range keys {
			sizes[i] = pipe.MemoryUsage(ctx, key, 0)
			switch {
			case strings.Contains(key, "}:done:"):
				counts[i] = pipe.HLen(ctx, key)
			case strings.HasSuffix(key, "}:ledger"):
				counts[i] = pipe.XLen(ctx, key)
			}
		}
		if _, err := pipe.Exec(ctx); err != nil && len(keys) > 0 {
			return err
		}
		for i, key := range keys {
			switch {
			case strings.Contains(key, "}:done:"):
				tombstones, dead = tombstones+sizes[i].Val(), dead+counts[i].Val()
			case strings.HasSuffix(key, "}:ledger"):
				ledger, entries = ledger+sizes[i].Val(), entries+counts[i].Val()
			case strings.Contains(key, ":user-") || strings.Contains(key, ":key-"):
				users += sizes[i].Val()
			}
		}
		cursor = next
		if cursor == 0 {
			break
		}
	}
	r.BytesPerUser = float64(users) / float64(max(1, r.Active))
	r.BytesPerTombstone = float64(tombstones) / float64(max(1, dead))
	r.BytesPerEntry = float64(ledger) / float64(max(1, entries))
	return nil
}
