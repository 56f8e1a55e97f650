package main

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"
)

// bareAsynq measures how many tasks per second asynq alone processes on this Redis: tasks of 2
// KB, enqueued beforehand, with an empty handler. It is the baseline for the queue, without
// holds, fairness and results.
func (d *drain) bareAsynq(ctx context.Context, n int) (float64, error) {
	if err := d.rdb.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	client := asynq.NewClientFromRedisClient(d.rdb)
	var put errgroup.Group
	put.SetLimit(putters)
	body := make([]byte, 2048)
	for range n {
		put.Go(func() error { _, err := client.EnqueueContext(ctx, asynq.NewTask("bench", body)); return err })
	}
	if err := put.Wait(); err != nil {
		return 0, err
	}
	var done atomic.Int64
	server := asynq.NewServerFromRedisClient(d.rdb,
		asynq.Config{Concurrency: cmp.Or(d.handlers, 64), LogLevel: asynq.FatalLevel})
	start := time.Now()
	if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		done.Add(1)
		return nil
	})); err != nil {
		return 0, err
	}
	defer server.Shutdown()
	for done.Load() < int64(n) {
		if time.Since(start) > 5*time.Minute {
			return 0, fmt.Errorf("asynq alone drained %d of %d tasks", done.Load(), n)
		}
		time.Sleep(time.Millisecond)
	}
	return float64(n) / time.Since(start).Seconds(), nil
}
