package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// turnEnd is what becomes of a turn after its run. The zero turnEnd ends it.
type turnEnd struct {
	kind turnKind
	wait time.Duration // of turnRests
}

type turnKind uint8

const (
	turnGone  turnKind = iota
	turnWaits          // the job waits again
	turnRests          // the job waits for its next attempt
	turnDead           // the job is a dead letter
)

// restError makes asynq retry a turn after a time.
type restError struct{ wait time.Duration }

func (e restError) Error() string { return "the job rests for " + e.wait.String() }

// spareHandlers handle turns without a job while all others run one.
const spareHandlers = 4

// turnServer is an asynq server whose queues are pools.
type turnServer struct {
	queues   map[string]int
	handlers int
	server   *asynq.Server
	stop     context.CancelFunc // ends the waiting of its fetches
}

// serve starts an asynq server for the pools of all crews, if they have changed. The turns of
// the replaced server continue.
func (s *workerPool) serve() {
	queues, handlers := map[string]int{}, 0
	for id, crew := range s.crews {
		queues[id] = 1
		handlers += crew.most
	}
	if s.server != nil && maps.Equal(queues, s.server.queues) && handlers <= s.server.handlers {
		return
	}
	old := s.server
	s.server = nil
	if len(queues) > 0 {
		s.server = s.newServer(queues, handlers)
	}
	if old != nil {
		s.background.Go(old.shutdown)
	}
}

func (s *workerPool) newServer(queues map[string]int, handlers int) *turnServer {
	q := s.w.q
	ctx, stop := context.WithCancel(context.WithoutCancel(s.ctx))
	c := asynq.Config{
		Concurrency: handlers + spareHandlers, Queues: queues, TaskCheckInterval: fetchRest, DelayedTaskCheckInterval: delayedEvery,
		ShutdownTimeout: s.w.opts.ShutdownTimeout + abortTime,
		RetryDelayFunc: func(_ int, err error, _ *asynq.Task) time.Duration {
			var rest restError
			errors.As(err, &rest) // else its worker died: at once
			return rest.wait
		},
		IsFailure: func(err error) bool { return !errors.As(err, new(restError)) },
		Logger:    newAsynqLog(ctx, q.log, "turns"), LogLevel: asynq.ErrorLevel,
		BaseContext: func() context.Context { return context.WithoutCancel(ctx) },
	}
	client := turnClient{pollingClient{q.rdb, ctx, make(chan struct{}, 1)}, s.gate}
	t := &turnServer{queues, handlers, asynq.NewServerFromRedisClient(client, c), stop}
	s.background.Go(func() { t.start(s.ctx, s) })
	return t
}

// start starts the server, which needs Redis. It retries until ctx is done.
func (t *turnServer) start(ctx context.Context, s *workerPool) {
	for ctx.Err() == nil {
		err := t.server.Start(asynq.HandlerFunc(s.turn))
		if err == nil || errors.Is(err, asynq.ErrServerClosed) {
			return
		}
		s.w.q.log.WarnContext(ctx, "asynq server not started, will retry", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(storeRest):
		}
	}
}

// shutdown waits for the server's turns, and returns those that take longer than its timeout.
func (t *turnServer) shutdown() {
	if t == nil {
		return
	}
	t.stop()
	t.server.Shutdown()
}

// turn is the handler of turns: it runs the job that was claimed for it.
func (s *workerPool) turn(ctx context.Context, task *asynq.Task) error {
	pool, _ := asynq.GetQueueName(ctx)
	q := s.w.q
	ctx = context.WithoutCancel(ctx) // the turn is worth a late write
	if task.Type() == deadType {     // run with asynq's tools
		s.gate.putBack(pool)
		return q.replayRun(ctx, string(task.Payload()))
	}
	c, spare := s.gate.take(pool)
	if spare {
		return nil
	}
	if c == nil { // its job runs without it, or its worker ends
		q.turns.add(ctx, pool, string(task.Payload()))
		return nil
	}
	switch end := s.run(c); end.kind {
	case turnWaits:
		q.turns.add(ctx, pool, c.id)
	case turnRests:
		return restError{end.wait}
	case turnDead:
		q.turns.bury(ctx, pool, c.id)
	case turnGone:
	}
	return nil
}

// run runs a claimed job and returns what becomes of its turn.
func (s *workerPool) run(c *Claim) turnEnd {
	defer s.handlers.Done()
	defer c.pacer.ask(1)
	s.w.run(s.runCtx, c)
	return c.after
}

// release returns the jobs that still wait for a turn to the queue.
func (s *workerPool) release() {
	ctx := context.WithoutCancel(s.ctx)
	for id := range s.crews {
		for _, c := range s.gate.drain(id) {
			if err := c.release(ctx, Verdict{Kind: Requeue, Unused: true}, "0"); err != nil {
				s.w.q.log.WarnContext(ctx, "claim not released", "job", c.id, "err", err)
			}
			s.handlers.Done()
		}
	}
}

// balanceEvery is the interval between two comparisons of turns and jobs.
const balanceEvery = time.Second

// balance is how far the turns of a pool deviate from its jobs: positive if there are too many. A
// deviation counts once two comparisons have seen it, because both change all the time.
type balance struct{ waiting, active, dead int }

// both returns the part of a deviation that two comparisons have in common.
func both(a, b int) int {
	switch {
	case a > 0 && b > 0:
		return min(a, b)
	case a < 0 && b < 0:
		return max(a, b)
	}
	return 0
}

// balanceAll compares turns and jobs in all pools that are not quiet.
func (s *workerPool) balanceAll(ctx context.Context) {
	pools := s.w.q.settings.pools()
	for _, id := range slices.Sorted(maps.Keys(pools)) {
		if p := pools[id]; !p.quiet() {
			if err := s.balance(ctx, p); err != nil && ctx.Err() == nil {
				s.w.q.log.DebugContext(ctx, "asynq tasks not compared with jobs, will retry", "pool", id, "err", err)
			}
		}
	}
}

// balance adds the turns that a pool lacks and removes those without a job: of jobs that were
// cancelled while they waited, of dead workers, of messages lost by Redis.
func (s *workerPool) balance(ctx context.Context, p *pool) error {
	q := s.w.q
	mine, err := q.rdb.SetNX(ctx, turnsKey(p.ID), "1", balanceEvery-balanceEvery/10).Result()
	if err != nil || !mine {
		return err
	}
	pipe := q.rdb.Pipeline()
	jobs, claimed, dead := pipe.HGet(ctx, p.keys[7], "jobs"), pipe.HLen(ctx, p.keys[3]), pipe.ZCard(ctx, p.deadKey())
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("queue: jobs of %s: %w", p.ID, err)
	}
	open, _ := jobs.Int()
	running := int(claimed.Val())
	letters := int(dead.Val())
	info, err := q.turns.look.GetQueueInfo(p.ID)
	if errors.Is(err, asynq.ErrQueueNotFound) {
		info, err = &asynq.QueueInfo{}, nil
	}
	if err != nil {
		return fmt.Errorf("queue: asynq tasks of %s: %w", p.ID, err)
	}
	last := s.balances[p.ID]
	now := &balance{
		waiting: info.Pending + info.Scheduled + info.Retry - (open - running), active: info.Active - running,
		dead: info.Archived - letters,
	}
	s.balances[p.ID] = now
	if last == nil {
		return nil
	}
	if both(last.active, now.active) > 0 {
		return q.turns.recall(ctx, p)
	}
	if both(last.dead, now.dead) != 0 {
		if err := q.balanceDead(ctx, p); err != nil {
			return err
		}
	}
	if n := both(last.waiting, now.waiting); n > 0 {
		s.gate.remove(p.ID, min(n, info.Pending))
	} else {
		for range -n {
			q.turns.add(ctx, p.ID, "")
		}
	}
	return nil
}

// balanceDead gives every dead letter of a pool its archived task, and removes other archived tasks.
func (q *Queue) balanceDead(ctx context.Context, p *pool) error {
	ids, err := q.rdb.ZRange(ctx, p.deadKey(), 0, -1).Result()
	if err != nil {
		return fmt.Errorf("queue: dead letters of %s: %w", p.ID, err)
	}
	buried, err := q.turns.buried(p.ID)
	if err != nil {
		return fmt.Errorf("queue: archived tasks of %s: %w", p.ID, err)
	}
	for _, id := range ids {
		if !buried[id] {
			q.turns.bury(ctx, p.ID, id)
		}
		delete(buried, id)
	}
	for id := range buried {
		q.turns.exhume(ctx, p.ID, id)
	}
	return nil
}

// replayRun replays a dead letter whose archived task was run with asynq's tools.
func (q *Queue) replayRun(ctx context.Context, id string) error {
	_, err := q.Replay(ctx, id)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotDead) {
		return nil
	}
	if err != nil {
		return restError{storeRest}
	}
	return nil
}

// recall makes the turns of dead workers pending again, as asynq would after two minutes.
func (t *turnQueue) recall(ctx context.Context, p *pool) error {
	keys := []string{asynqName(p.ID, "active"), asynqName(p.ID, "lease"), asynqName(p.ID, "pending")}
	now := time.Now()
	err := recallScript.Run(ctx, t.rdb, keys, now.Unix(), asynqName(p.ID, "t:"), now.UnixNano()).Err()
	if err != nil {
		return fmt.Errorf("queue: turns of dead workers: %w", err)
	}
	return nil
}
