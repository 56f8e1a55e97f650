package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

// patient is the client asynq's servers use. Their fetch loop repeats a failed
// fetch at once; here a failure that is not an answer of Redis takes its time,
// so that an absent Redis does not keep a core busy.
type patient struct{ redis.UniversalClient }

const failureTakes = 250 * time.Millisecond

// EvalSha runs a script as the wrapped client does.
func (c patient) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	cmd := c.UniversalClient.EvalSha(ctx, sha1, keys, args...)
	var answer redis.Error
	if err := cmd.Err(); err != nil && !errors.As(err, &answer) {
		select {
		case <-ctx.Done():
		case <-time.After(failureTakes):
		}
	}
	return cmd
}

// asynqLog passes asynq's messages on, a few per second at most.
type asynqLog struct {
	ctx   context.Context // asynq passes none
	log   *slog.Logger
	limit *rate.Limiter
}

func newAsynqLog(ctx context.Context, log *slog.Logger, pool string) *asynqLog {
	return &asynqLog{ctx: ctx, log: log.With("pool", pool), limit: rate.NewLimiter(1, 5)}
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
