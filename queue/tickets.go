package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

const ticketType = "ticket"

// Where so many jobs wait, the handlers there are do not leave, so a ticket
// wakes nobody; one in crowdTickets is still made, for workers that join.
const (
	crowd        = 1000
	crowdTickets = 16
)

// ticketRest is how long what this process puts into a pool shares a ticket.
// Its handler finds all of it, and wakes others if it is much: see pacer.spread.
const ticketRest = 5 * time.Millisecond

// waker makes the tickets for the jobs that this process puts into a pool: at
// once when it rests, else one for all that come until ticketRest has passed.
// So there is always a ticket made after a job was put; if the process dies
// before, the workers' look once a second finds the job.
type waker struct {
	mu    sync.Mutex
	awake bool
	again bool
}

// wakeSoon has a ticket made for a job that was just put.
func (q *Queue) wakeSoon(ctx context.Context, p *pool) {
	w := &p.waker
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = true
	if w.awake {
		return
	}
	w.awake = true
	go w.run(context.WithoutCancel(ctx), q, p) // the client's own timeouts bound it
}

func (w *waker) run(ctx context.Context, q *Queue, p *pool) {
	for {
		w.mu.Lock()
		if w.awake = w.again; !w.awake {
			w.mu.Unlock()
			return
		}
		w.again = false
		w.mu.Unlock()
		q.enqueueTicket(ctx, p)
		time.Sleep(ticketRest)
	}
}

// enqueueTicket wakes a worker of the pool. A ticket that cannot be enqueued is
// not missed: every worker looks for work once a second.
func (q *Queue) enqueueTicket(ctx context.Context, p *pool) {
	_, err := q.tickets.EnqueueContext(ctx, asynq.NewTask(ticketType, nil),
		asynq.Queue(p.ID), asynq.MaxRetry(1), asynq.Timeout(time.Hour))
	if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) { // a conflict is our own, its reply was lost
		q.metrics.lostTickets.WithLabelValues(p.ID).Inc()
		q.log.WarnContext(ctx, "ticket not enqueued, the next look finds the job", "pool", p.ID, "err", err)
	}
}

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

// Server returns an asynq server of one asynq queue, which bears an absent Redis
// and logs as q does: for tickets, and for other wake-ups beside them. Look is
// how often it looks for tasks, shutdown how long it then waits for them. Tasks
// outlive ctx: whoever handles them ends them.
func (q *Queue) Server(ctx context.Context, name string, concurrency int, look, shutdown time.Duration) *asynq.Server {
	return asynq.NewServerFromRedisClient(patient{q.rdb}, asynq.Config{
		Concurrency:              concurrency,
		Queues:                   map[string]int{name: 1},
		TaskCheckInterval:        look,
		DelayedTaskCheckInterval: time.Second,
		ShutdownTimeout:          shutdown,
		Logger:                   newAsynqLog(ctx, q.log, name),
		LogLevel:                 asynq.WarnLevel,
		BaseContext:              func() context.Context { return context.WithoutCancel(ctx) },
	})
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
