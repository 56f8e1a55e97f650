package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/time/rate"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/asynqdriver"
)

// pollingClient is the Redis client of asynq's servers. Their fetch loop polls; with this
// client a fetch that finds nothing waits for a notification, so that an idle server costs
// little and a busy one reacts quickly. The loop also repeats a failed fetch immediately;
// this client pauses after any failure that is not a reply from Redis, so that an
// unreachable Redis does not keep a core busy.
type pollingClient struct {
	redisconn.DB
	ctx    context.Context // of the server: once it is done, no fetch waits
	called chan struct{}
}

const (
	failureTakes = 250 * time.Millisecond
	// fetchEvery is the interval between fetches without a notification, fetchRest
	// asynq's own pause.
	fetchEvery = 2 * time.Second
	fetchRest  = 2 * time.Millisecond
	// delayedEvery is the interval between checks for delayed tasks that are due.
	delayedEvery = time.Second
)

// EvalSha runs a script on the wrapped client, then waits if it was a fetch that found
// nothing or if it failed.
func (c pollingClient) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) redisconn.Reply {
	cmd := c.DB.EvalSha(ctx, sha1, keys, args...)
	err := cmd.Err()
	var answer redisconn.Error
	fetch := len(keys) > 0 && strings.HasSuffix(keys[0], ":pending")
	switch n, _ := cmd.Val().(int64); {
	case n > 0 && !fetch: // delayed tasks are now pending
		c.call()
	case redisconn.IsNil(err) && fetch: // nothing to fetch
		c.rest(ctx, fetchEvery, c.called)
	case err != nil && !errors.As(err, &answer):
		c.rest(ctx, failureTakes, nil)
	}
	return cmd
}

// call wakes a waiting fetch.
func (c pollingClient) call() {
	select {
	case c.called <- struct{}{}:
	default:
	}
}

func (c pollingClient) rest(ctx context.Context, d time.Duration, called <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-c.ctx.Done():
	case <-called:
	case <-timer.C:
	}
}

func fetchChannel(queue string) string { return "lg:asynq:" + queue }

// CallServers notifies the servers of an asynq queue that a task was enqueued. A server
// that misses the message fetches the task within two seconds.
func CallServers(ctx context.Context, rdb redisconn.DB, queue string) {
	_ = rdb.Publish(ctx, fetchChannel(queue), "").Err()
}

// Server returns an asynq server for one asynq queue that tolerates an unreachable Redis
// and costs little while idle: enqueuers must notify it with CallServers. Of c it uses
// Concurrency, ShutdownTimeout, RetryDelayFunc, IsFailure and DelayedTaskCheckInterval.
// Tasks do not inherit the cancellation of ctx; their handlers must end them. Shut the
// server down when ctx is done.
func Server(ctx context.Context, rdb redisconn.DB, log *slog.Logger, name string,
	c asynq.Config,
) *asynq.Server {
	client := pollingClient{rdb, ctx, make(chan struct{}, 1)}
	sub := rdb.Subscribe(ctx, fetchChannel(name))
	context.AfterFunc(ctx, func() { _ = sub.Close() })
	go sub.Each(func(m redisconn.Message) {
		if !m.Joined {
			client.call()
		}
	})
	c.Queues = map[string]int{name: 1}
	c.TaskCheckInterval = fetchRest
	c.DelayedTaskCheckInterval = cmp.Or(c.DelayedTaskCheckInterval, delayedEvery)
	c.Logger, c.LogLevel = newAsynqLog(ctx, log, name), asynq.WarnLevel
	c.BaseContext = func() context.Context { return context.WithoutCancel(ctx) }
	return asynqdriver.Server(rdb, client, c)
}

// asynqLog forwards asynq's messages: bursts of 5, then one a second.
type asynqLog struct {
	ctx   context.Context // asynq passes no context
	log   *slog.Logger
	limit *rate.Limiter
}

func newAsynqLog(ctx context.Context, log *slog.Logger, queue string) *asynqLog {
	return &asynqLog{ctx: ctx, log: log.With("queue", queue), limit: rate.NewLimiter(1, 5)}
}

func (l *asynqLog) pass(level slog.Level, args []any) {
	if l.limit.Allow() {
		l.log.Log(l.ctx, level, "asynq message", "text", fmt.Sprint(args...))
	}
}

// Debug and the methods below implement asynq.Logger. Fatal does not end the process.
func (l *asynqLog) Debug(args ...any) {}
func (l *asynqLog) Info(args ...any)  { l.pass(slog.LevelInfo, args) }
func (l *asynqLog) Warn(args ...any)  { l.pass(slog.LevelWarn, args) }
func (l *asynqLog) Error(args ...any) { l.pass(slog.LevelError, args) }
func (l *asynqLog) Fatal(args ...any) { l.pass(slog.LevelError, args) }
