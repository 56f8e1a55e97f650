package cache

import (
	"context"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

const (
	sweepEvery = 15 * time.Minute
	// sweepAge exceeds the time between writing a body and its ref, on any clock.
	sweepAge = time.Hour
	// sweepKey exists while a process deletes bodies without an answer.
	sweepKey = "lg:cache:sweep"
)

// Run deletes the bodies in files.store whose answers expired, were evicted or never stored, until
// ctx is done; then it returns nil. One process does it for all.
func (s *Store) Run(ctx context.Context) error {
	if s.bodies.blobs == nil {
		return nil
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.sweepOnce(ctx); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "bodies of deleted answers not all removed, the next sweep will retry", "err", err)
			}
		}
	}
}

// sweepOnce sweeps unless another process did so in this interval.
func (s *Store) sweepOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepEvery-time.Minute)
	defer cancel()
	mine, err := s.rdb.SetNX(ctx, sweepKey, "1", sweepEvery-time.Minute).Result()
	if err != nil || !mine {
		return err
	}
	_, err = s.sweep(ctx, time.Now().Add(-sweepAge))
	return err
}

// sweep deletes bodies written before a time to which no answer refers, and returns their number.
func (s *Store) sweep(ctx context.Context, before time.Time) (int, error) {
	return s.bodies.blobs.Sweep(ctx, bodyPrefix, func(name string, at time.Time) bool {
		key, _ := keyOfBody(name)
		return key != "" && at.Before(before)
	}, s.orphans)
}

// orphans returns the bodies whose answers are gone, and those that were never complete.
func (s *Store) orphans(ctx context.Context, names []string) (gone []string, err error) {
	pipe := s.rdb.Pipeline()
	exist := make([]redisconn.Cmd[int64], len(names))
	for i, name := range names {
		key, _ := keyOfBody(name)
		exist[i] = pipe.Exists(ctx, key)
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("cache: sweep: %w", err)
	}
	for i, name := range names {
		if _, partial := keyOfBody(name); partial || exist[i].Val() == 0 {
			gone = append(gone, name)
		}
	}
	return gone, nil
}
