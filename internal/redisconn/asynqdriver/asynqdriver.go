// Package asynqdriver gives asynq its connection to Redis.
package asynqdriver

import (
	"context"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

// Client returns asynq's client. scripts runs its scripts; their replies are those of rdb, or of NewReply.
func Client(rdb redisconn.DB, scripts redisconn.Scripter) *asynq.Client {
	return asynq.NewClientFromRedisClient(client{driver.Client(rdb), scripts})
}

// Inspector returns asynq's inspector.
func Inspector(rdb redisconn.DB) *asynq.Inspector {
	return asynq.NewInspectorFromRedisClient(driver.Client(rdb))
}

// Server returns an asynq server. scripts runs its scripts, see Client.
func Server(rdb redisconn.DB, scripts redisconn.Scripter, c asynq.Config) *asynq.Server {
	return asynq.NewServerFromRedisClient(client{driver.Client(rdb), scripts}, c)
}

// NewReply returns a reply that no server made. Without a value it is Redis's nil.
func NewReply(ctx context.Context, val any) redisconn.Reply { return driver.NewReply(ctx, val) }

// client runs asynq's scripts, and subscribes to its channels with their prefix.
type client struct {
	redis.UniversalClient
	scripts redisconn.Scripter
}

func (c client) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return driver.Cmd(c.scripts.EvalSha(ctx, sha1, keys, args...))
}

func (c client) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return driver.Cmd(c.scripts.Eval(ctx, script, keys, args...))
}

func (c client) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return driver.Subscribe(ctx, c.UniversalClient, channels...)
}
