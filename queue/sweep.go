package queue

import (
	"context"
	"log/slog"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

const (
	sweepEvery = 15 * time.Minute
	// sweepAge exceeds the time between writing a blob and its ref, on any clock.
	sweepAge = time.Hour
	sweepKey = "lg:queue:sweep"
	// sinceKey holds when this Redis first had a sweep, in Unix seconds. Older blobs
	// may belong to records that a backup restores: they are kept for spareAge.
	sinceKey = "lg:queue:sweep:since"
	spareAge = 7 * 24 * time.Hour
)

// sweeper removes blobs that no job refers to.
type sweeper struct {
	rdb      redisconn.DB
	opts     *Options
	log      *slog.Logger
	settings *settings
}

// sweepBlobs deletes the blobs that nothing in Redis refers to any more: their jobs have
// been forgotten or were never put. Only one process sweeps at a time.
func (s *sweeper) sweepBlobs(ctx context.Context) {
	mine, err := s.rdb.SetNX(ctx, sweepKey, "1", sweepEvery-time.Minute).Result()
	if err == nil && mine {
		var from time.Time
		from, err = s.sweepFrom(ctx)
		if err == nil {
			_, err = s.sweep(ctx, from, time.Now().Add(-sweepAge))
		}
	}
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "blobs of deleted jobs not all removed, the next sweep will retry", "err", err)
	}
}

// sweepFrom returns the time of the oldest blob that may be swept.
func (s *sweeper) sweepFrom(ctx context.Context) (time.Time, error) {
	now := time.Now()
	if err := s.rdb.SetNX(ctx, sinceKey, now.Unix(), 0).Err(); err != nil {
		return now, err
	}
	seconds, err := s.rdb.Get(ctx, sinceKey).Int64()
	if err != nil {
		return now, err
	}
	spare := max(spareAge, s.opts.DeadTTL)
	for _, p := range s.settings.pools() {
		spare = max(spare, p.MaxAge+p.ResultTTL)
	}
	if since := time.Unix(seconds, 0); now.Sub(since) < spare {
		return since, nil
	}
	return time.Time{}, nil
}

// sweep deletes unreferenced blobs written between two times and returns their number.
func (s *sweeper) sweep(ctx context.Context, from, before time.Time) (int, error) {
	return s.opts.Blobs.Sweep(ctx, blobPrefix, func(name string, at time.Time) bool {
		return !at.Before(from) && at.Before(before) && blobKey(name) != ""
	}, s.unreferred)
}

// unreferred returns the blobs whose keys are gone.
func (s *sweeper) unreferred(ctx context.Context, names []string) (gone []string, err error) {
	pipe := s.rdb.Pipeline()
	there := make([]redisconn.Cmd[int64], len(names))
	for i, name := range names {
		there[i] = pipe.Exists(ctx, blobKey(name))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for i := range there {
		if there[i].Val() == 0 {
			gone = append(gone, names[i])
		}
	}
	return gone, nil
}
