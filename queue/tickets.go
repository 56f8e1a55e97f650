package queue

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

// ticketsEvery is how often tickets of older versions are removed.
const ticketsEvery = time.Hour

// dropTickets removes the asynq queues, one a pool, by which older versions woke their
// workers. What is left in them is worth nothing: the jobs are in the pools.
func (en *endings) dropTickets(ctx context.Context) {
	inspector := asynq.NewInspectorFromRedisClient(en.rdb)
	for id := range en.settings.pools() {
		if ctx.Err() != nil {
			return
		}
		if err := inspector.DeleteQueue(id, true); err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
			en.log.DebugContext(ctx, "old tickets not removed, will retry", "pool", id, "err", err)
		}
	}
}
