package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

// pollingClient is the client asynq's servers use. Their fetch loop polls; here a fetch that
// finds nothing waits for a message, so that an idle server costs little and a busy one
// is quick. And it repeats a failed fetch at once; here a failure that is not an answer
// of Redis takes its time, so that an absent Redis does not keep a core busy.
type pollingClient struct {
	redis.UniversalClient
	ctx    context.Context // of the server: when it is done, no fetch waits
	called chan struct{}
}

const (
	failureTakes = 250 * time.Millisecond
	// fetchEvery is how often a server fetches that nobody called, fetchRest its own pause.
	fetchEvery = 2 * time.Second
	fetchRest  = 2 * time.Millisecond
	// delayedEvery is how often tasks are looked for whose time has come.
	delayedEvery = time.Second
)

// EvalSha runs a script as the wrapped client does.
func (c pollingClient) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	cmd := c.UniversalClient.EvalSha(ctx, sha1, keys, args...)
	err := cmd.Err()
	var answer redis.Error
	fetch := len(keys) > 0 && strings.HasSuffix(keys[0], ":pending")
	switch n, _ := cmd.Val().(int64); {
	case n > 0 && !fetch: // tasks whose time has come can be fetched now
		c.call()
	case errors.Is(err, redis.Nil) && fetch: // there was none
		c.rest(ctx, fetchEvery, c.called)
	case err != nil && !errors.As(err, &answer):
		c.rest(ctx, failureTakes, nil)
	}
	return cmd
}

// call ends the wait of a fetch.
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

// CallServers tells the servers of an asynq queue that a task was enqueued. One that is
// not reached fetches it within two seconds.
func CallServers(ctx context.Context, rdb redis.UniversalClient, queue string) {
	_ = rdb.Publish(ctx, fetchChannel(queue), "").Err()
}

// Server returns an asynq server of one asynq queue that bears an absent Redis and costs
// little while it is idle: whoever enqueues a task tells it by CallServers. Of c, the
// Concurrency, ShutdownTimeout, RetryDelayFunc, IsFailure and DelayedTaskCheckInterval
// count. Tasks outlive ctx: whoever handles them ends them. Shut it down when ctx is done.
func Server(ctx context.Context, rdb redis.UniversalClient, log *slog.Logger, name string,
	c asynq.Config,
) *asynq.Server {
	client := pollingClient{rdb, ctx, make(chan struct{}, 1)}
	sub := rdb.Subscribe(ctx, fetchChannel(name))
	context.AfterFunc(ctx, func() { _ = sub.Close() })
	go func() {
		for range sub.Channel() {
			client.call()
		}
	}()
	c.Queues = map[string]int{name: 1}
	c.TaskCheckInterval = fetchRest
	c.DelayedTaskCheckInterval = cmp.Or(c.DelayedTaskCheckInterval, delayedEvery)
	c.Logger, c.LogLevel = newAsynqLog(ctx, log, name), asynq.WarnLevel
	c.BaseContext = func() context.Context { return context.WithoutCancel(ctx) }
	return asynq.NewServerFromRedisClient(client, c)
}

// asynqLog passes asynq's messages on, a few per second at most.
type asynqLog struct {
	ctx   context.Context // asynq passes none
	log   *slog.Logger
	limit *rate.Limiter
}

func newAsynqLog(ctx context.Context, log *slog.Logger, queue string) *asynqLog {
	return &asynqLog{ctx: ctx, log: log.With("queue", queue), limit: rate.NewLimiter(1, 5)}
}

func (l *asynqLog) pass(level slog.Level, args []any) {
	if l.limit.Allow() {
		l.log.Log(l.ctx, level, "asynq says", "text", fmt.Sprint(args...))
	}
}

// Debug and the others implement asynq.Logger. Fatal does not end the process.
func (l *asynqLog) Debug(args ...any) {}
func (l *asynqLog) Info(args ...any)  { l.pass(slog.LevelInfo, args) }
func (l *asynqLog) Warn(args ...any)  { l.pass(slog.LevelWarn, args) }
func (l *asynqLog) Error(args ...any) { l.pass(slog.LevelError, args) }
func (l *asynqLog) Fatal(args ...any) { l.pass(slog.LevelError, args) }

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
