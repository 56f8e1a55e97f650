package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"
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

// turnServer is an asynq server whose queues are pools.
type turnServer struct {
	server *asynq.Server
	stop   context.CancelFunc // ends the waiting of its fetches
}

// serve starts an asynq server for the pools of all crews. The turns of the replaced server continue.
func (s *workerPool) serve() {
	queues, handlers := map[string]int{}, 0
	for id, crew := range s.crews {
		queues[id] = 1
		handlers += crew.most
	}
	old := s.server
	s.server = nil
	if len(queues) > 0 {
		s.server = s.newServer(queues, handlers)
	}
	if old != nil {
		go old.shutdown()
	}
}

func (s *workerPool) newServer(queues map[string]int, handlers int) *turnServer {
	q := s.w.q
	ctx, stop := context.WithCancel(context.WithoutCancel(s.ctx))
	c := asynq.Config{
		Concurrency: handlers, Queues: queues, TaskCheckInterval: fetchRest, DelayedTaskCheckInterval: delayedEvery,
		ShutdownTimeout: turnTime, // the runs have bounds of their own
		RetryDelayFunc: func(_ int, err error, _ *asynq.Task) time.Duration {
			var rest restError
			errors.As(err, &rest)            // else its worker died: at once
			return rest.wait - 2*delayedEvery // the turn must be there when the job's rest ends
		},
		IsFailure: func(err error) bool { return !errors.As(err, new(restError)) },
		Logger:    newAsynqLog(ctx, q.log, "turns"), LogLevel: asynq.ErrorLevel,
		BaseContext: func() context.Context { return context.WithoutCancel(ctx) },
	}
	client := turnClient{pollingClient{q.rdb, ctx, nil}, q.opts.Scripts, s.gate}
	t := &turnServer{asynq.NewServerFromRedisClient(client, c), stop}
	if err := t.server.Start(asynq.HandlerFunc(s.turn)); err != nil { // needs no Redis
		q.log.ErrorContext(ctx, "asynq server not started", "err", err)
	}
	return t
}

// shutdown waits for the server's turns.
func (t *turnServer) shutdown() {
	t.stop()
	t.server.Shutdown()
}

// turn is the handler of turns: it runs the job that was claimed for it.
func (s *workerPool) turn(ctx context.Context, task *asynq.Task) error {
	pool, _ := asynq.GetQueueName(ctx)
	q := s.w.q
	ctx = context.WithoutCancel(ctx) // the turn is worth a late write
	r := s.gate.take(pool)
	if task.Type() == deadType { // run with asynq's tools
		if r != nil {
			s.gate.back(r)
		}
		return q.replayRun(ctx, string(task.Payload()))
	}
	if r == nil { // its job has ended without it
		q.turns.add(ctx, pool, string(task.Payload()))
		return nil
	}
	if r.running {
		return q.turns.ended(ctx, r.claim, <-r.end)
	}
	return q.turns.ended(ctx, r.claim, s.run(r.claim))
}

// ended gives the turn that a job has used to another job, if one needs it. The error is asynq's.
func (t *turnQueue) ended(ctx context.Context, c *Claim, end turnEnd) error {
	switch end.kind {
	case turnWaits:
		t.add(ctx, c.p.ID, c.id)
	case turnRests:
		return restError{end.wait}
	case turnDead:
		t.bury(ctx, c.p.ID, c.id)
	case turnGone:
	}
	return nil
}

// runLate runs a claimed job without a turn.
func (s *workerPool) runLate(r *readyClaim) {
	end := s.run(r.claim)
	if !s.gate.leave(r) {
		r.end <- end
		return
	}
	ctx := context.WithoutCancel(s.ctx)
	if err := s.w.q.turns.ended(ctx, r.claim, end); err != nil {
		s.w.q.turns.add(ctx, r.claim.p.ID, r.claim.id, asynq.ProcessIn(end.wait-2*delayedEvery))
	}
}

// run runs a claimed job, or returns it to the queue if the worker ends. It returns what becomes of its turn.
func (s *workerPool) run(c *Claim) turnEnd {
	defer s.handlers.Done()
	defer c.pacer.ask(1)
	if s.ctx.Err() == nil {
		s.w.run(s.runCtx, c)
		return c.after
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), abortTime)
	defer cancel()
	defer c.dropBody()
	if err := c.conclude(ctx, Verdict{Kind: Requeue, Unused: true}); err != nil {
		s.w.q.log.WarnContext(ctx, "claim not released", "job", c.id, "err", err)
	}
	return c.after
}

// balanceEvery is the interval between two comparisons of turns and jobs.
const balanceEvery = time.Second / 2

// balanceAll compares turns and jobs in all pools that are not quiet, or that still differ.
func (s *workerPool) balanceAll(ctx context.Context) {
	pools := s.w.q.settings.pools()
	for _, id := range slices.Sorted(maps.Keys(pools)) {
		p := pools[id]
		if p.quiet() && !s.differ[id] {
			continue
		}
		differ, err := s.w.q.balance(ctx, p)
		s.differ[id] = differ || err != nil
		if err != nil && ctx.Err() == nil {
			s.w.q.log.DebugContext(ctx, "asynq tasks not compared with jobs, will retry", "pool", id, "err", err)
		}
	}
}

// balance adds the turns that a pool lacks and removes those without a job: of jobs that were
// cancelled while they waited, of dead workers, of messages lost by Redis. It reports whether they may differ.
func (q *Queue) balance(ctx context.Context, p *pool) (bool, error) {
	keys := append(slices.Clone(p.keys), turnsKey(p.ID))
	for _, list := range []string{"pending", "active", "lease", "scheduled", "retry", "archived"} {
		keys = append(keys, asynqName(p.ID, list))
	}
	now := time.Now()
	reply, err := q.scripts.eval(ctx, "balance", balanceScript, keys, (balanceEvery - balanceEvery/10).Microseconds(),
		asynqName(p.ID, "t:"), now.Unix(), now.UnixNano())
	if err != nil || reply == "" {
		return true, err
	}
	var lacks, rests int
	var dead, differ int
	if _, err := fmt.Sscan(reply, &lacks, &rests, &dead, &differ); err != nil {
		return true, fmt.Errorf("queue: balance replied %q", reply)
	}
	if lacks+rests > 0 { // asynq registers a queue once per process, and Redis may have lost that
		if err := q.rdb.SAdd(ctx, "asynq:queues", p.ID).Err(); err != nil {
			return true, fmt.Errorf("queue: asynq queues: %w", err)
		}
	}
	for range lacks {
		q.turns.add(ctx, p.ID, "")
	}
	for range rests {
		q.turns.add(ctx, p.ID, "", asynq.ProcessIn(turnTime)) // removed once its job waits again
	}
	if dead == 1 {
		return true, q.balanceDead(ctx, p)
	}
	return differ == 1, nil
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
			err = errors.Join(err, q.rebury(ctx, p, id))
		}
		delete(buried, id)
	}
	for id := range buried {
		q.turns.exhume(ctx, p.ID, id)
	}
	return err
}

// rebury adds the archived task of a dead letter again, or replays the letter if somebody runs the task with
// asynq's tools.
func (q *Queue) rebury(ctx context.Context, p *pool, id string) error {
	task, err := q.turns.look.GetTaskInfo(p.ID, id)
	if err == nil && task.State != asynq.TaskStateScheduled && task.State != asynq.TaskStateArchived {
		return q.replayRun(ctx, id)
	}
	q.turns.bury(ctx, p.ID, id)
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
