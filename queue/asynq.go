package queue

import (
	"context"
	"log/slog"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Patient returns rdb for asynq servers beside the queue's own: an absent Redis
// keeps no core busy with them.
func Patient(rdb redis.UniversalClient) redis.UniversalClient { return patient{rdb} }

// AsynqLogger returns what passes the messages of an asynq server on, a few per
// second at most. Name is that of its asynq queue.
func AsynqLogger(ctx context.Context, log *slog.Logger, name string) asynq.Logger {
	return newAsynqLog(ctx, log, name)
}
