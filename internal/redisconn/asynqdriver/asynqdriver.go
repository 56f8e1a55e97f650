// Package asynqdriver gives asynq its connection to Redis. Types of asynq that lead to go-redis are hidden behind
// interfaces, so that packages with one in a struct do not read go-redis when they are compiled.
package asynqdriver

import (
	"context"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

// Client adds tasks. It is safe for concurrent use.
type Client interface {
	// Enqueue adds a task of a kind; see asynq.Client.EnqueueContext.
	Enqueue(ctx context.Context, kind string, payload []byte, opts ...asynq.Option) error
}

// NewClient returns asynq's client. scripts runs its scripts; their replies are those of rdb, or of NewReply.
func NewClient(rdb redisconn.DB, scripts redisconn.Scripter) Client {
	return enqueuer{asynq.NewClientFromRedisClient(client{driver.Client(rdb), scripts})}
}

type enqueuer struct{ *asynq.Client }

func (e enqueuer) Enqueue(ctx context.Context, kind string, payload []byte, opts ...asynq.Option) error {
	_, err := e.EnqueueContext(ctx, asynq.NewTask(kind, payload), opts...)
	return err
}

// Inspector is asynq's inspector, as far as it is used.
type Inspector interface {
	ArchiveTask(queue, id string) error
	DeleteTask(queue, id string) error
	GetQueueInfo(queue string) (*asynq.QueueInfo, error)
	GetTaskInfo(queue, id string) (*asynq.TaskInfo, error)
	ListArchivedTasks(queue string, opts ...asynq.ListOption) ([]*asynq.TaskInfo, error)
	PauseQueue(queue string) error
	UnpauseQueue(queue string) error
}

// NewInspector returns asynq's inspector.
func NewInspector(rdb redisconn.DB) Inspector {
	return asynq.NewInspectorFromRedisClient(driver.Client(rdb))
}

// Server returns an asynq server. scripts runs its scripts, see NewClient.
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
