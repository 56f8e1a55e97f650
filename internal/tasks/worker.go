package tasks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/llmguard/llmguard/internal/redisconn/asynqdriver"
)

// ErrWaits and ErrDead are what becomes of a job after its run, beside Rests; nil: it has ended.
var (
	ErrWaits = errors.New("the job waits again")
	ErrDead  = errors.New("the job is a dead letter")
)

// early is by how much the retry of a task is due before the end of its job's rest. Asynq looks once every
// delayedEvery and rounds down to whole seconds, so the task becomes pending up to 1.5 s before that end, or
// half a second after it.
const early = delayedEvery / 2

// restError makes asynq retry a task after a time.
type restError struct{ wait time.Duration }

func (e restError) Error() string { return "the job rests for " + e.wait.String() }

// Rests is what becomes of a job that rests until its next attempt.
func Rests(wait time.Duration) error { return restError{wait} }

// Worker runs claimed jobs as the tasks of an asynq server. Its methods but Run belong to one goroutine.
type Worker struct {
	jobs   *Jobs
	ctx    context.Context // never done
	gate   *gate
	replay func(ctx context.Context, job string) error
	server *server
	ends   sync.WaitGroup // replaced servers, and jobs without a task
}

// server is an asynq server whose queues are pools.
type server struct {
	asynq interface{ Shutdown() }
	stop  context.CancelFunc // ends the waiting of its fetches
}

// NewWorker returns a Worker without a server. quiet reports whether a pool has no jobs; replay replays a dead
// letter of which somebody runs the task with asynq's tools.
func (t *Jobs) NewWorker(ctx context.Context, quiet func(pool string) bool,
	replay func(ctx context.Context, job string) error,
) *Worker {
	return &Worker{jobs: t, ctx: context.WithoutCancel(ctx), gate: newGate(quiet), replay: replay}
}

// Serve starts an asynq server for pools with their numbers of concurrent jobs. The jobs of the server that it
// replaces continue.
func (w *Worker) Serve(handlers map[string]int) {
	w.gate.serve(handlers)
	if old := w.server; old != nil {
		w.ends.Go(old.shutdown)
	}
	w.server = nil
	queues, sum := map[string]int{}, 0
	for pool, n := range handlers {
		queues[pool] = 1
		sum += n
	}
	if sum == 0 {
		return
	}
	ctx, stop := context.WithCancel(w.ctx)
	c := asynq.Config{
		Concurrency: sum, Queues: queues, TaskCheckInterval: fetchRest, DelayedTaskCheckInterval: delayedEvery,
		ShutdownTimeout: time.Hour, // jobs have bounds of their own; asynq keeps a replaced server for as long
		RetryDelayFunc: func(_ int, err error, _ *asynq.Task) time.Duration {
			var rest restError
			errors.As(err, &rest) // else its worker died: at once
			return rest.wait - early
		},
		IsFailure: func(err error) bool { return !errors.As(err, new(restError)) },
		Logger:    newAsynqLog(ctx, w.jobs.log, "jobs"), LogLevel: asynq.ErrorLevel,
		BaseContext: func() context.Context { return w.ctx },
	}
	client := fetchClient{pollingClient{w.jobs.rdb, ctx, nil}, w.jobs.scripts, w.gate}
	started := asynqdriver.Server(w.jobs.rdb, client, c)
	w.server = &server{started, stop}
	err := started.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		pool, _ := asynq.GetQueueName(ctx)
		return w.handle(pool, task.Type(), string(task.Payload()))
	}))
	if err != nil { // needs no Redis
		w.jobs.log.ErrorContext(ctx, "asynq server not started", "err", err)
	}
}

// Shutdown waits for the tasks of the jobs that have been run.
func (w *Worker) Shutdown() {
	if w.server != nil {
		w.server.shutdown()
	}
	w.ends.Wait()
}

func (s *server) shutdown() {
	s.stop()
	s.asynq.Shutdown()
}

// Run runs a claimed job as soon as the server has fetched a task of its pool, or without a task if there
// is none. It returns at once. run returns what becomes of the job.
func (w *Worker) Run(pool, job string, run func() error) {
	w.gate.wait(&turn{pool: pool, job: job, run: run}, w.late)
}

// handle is the handler of tasks: it runs the job that was claimed for the task.
func (w *Worker) handle(pool, kind, job string) error {
	if kind == deadType { // run with asynq's tools
		w.gate.none(pool)
		return w.replay(w.ctx, job)
	}
	t := w.gate.take(pool)
	if t == nil { // its job has ended without it
		w.jobs.Add(w.ctx, pool, job, 0)
		return nil
	}
	if t.running {
		return w.after(t, <-t.end)
	}
	return w.after(t, t.run())
}

// late runs a job without a task. If one is fetched meanwhile, its handler waits for the job's end.
func (w *Worker) late(t *turn) {
	w.ends.Add(1)
	defer w.ends.Done()
	end := t.run()
	if !w.gate.leave(t) {
		t.end <- end
		return
	}
	var rest restError
	if errors.As(w.after(t, end), &rest) {
		w.jobs.Add(w.ctx, t.pool, t.job, rest.wait)
	}
}

// after gives the job the task that it needs from now on. Its error is for asynq, which retries the task.
func (w *Worker) after(t *turn, end error) error {
	switch {
	case errors.Is(end, ErrWaits):
		w.jobs.Add(w.ctx, t.pool, t.job, 0)
		return nil
	case errors.Is(end, ErrDead):
		_ = w.jobs.Bury(w.ctx, t.pool, t.job) // logged
		return nil
	}
	return end
}
