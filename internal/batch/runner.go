package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/tasks"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// Options are the settings of a Runner. Guard and Queue are required.
type Options struct {
	Guard *guard.Guard
	Queue *queue.Queue
	// Scan bounds the body of a line like that of a live call, MaxLine the whole line,
	// in bytes. 0 is 32 MB.
	Scan    wire.Limits
	MaxLine int
	// InQueue is how many lines of a batch may be jobs at the same time, which bounds
	// its part of Redis however large it is. 0 is 1,000.
	InQueue int
	// RefuseOverBudget fails a batch whose estimate the budgets cannot cover within its
	// window; otherwise it only gets a warning.
	RefuseOverBudget bool
	// Lease is how long a batch stays with a silent process. 0 is 15 s.
	Lease time.Duration
	// Poll is how often a batch that its provider runs is polled there. 0 is 30 s.
	Poll time.Duration
	// Doubt is how long such a batch is searched for if the answer to its creation was
	// lost, before another one is created. 0 is 2 min.
	Doubt time.Duration
	// PartLines is the most lines of one file at a provider. 0 is 50,000.
	PartLines int
	// Ended, if not nil, is called for every batch that has ended, at least once: again
	// if it fails, or if its process dies meanwhile.
	Ended func(context.Context, *Batch) error

	Log     *slog.Logger
	Metrics prometheus.Registerer
}

func (o Options) withDefaults() Options {
	o.MaxLine = cmp.Or(o.MaxLine, 32_000_000)
	o.InQueue = cmp.Or(o.InQueue, 1000)
	o.PartLines = cmp.Or(o.PartLines, partLines)
	o.Lease = cmp.Or(o.Lease, 15*time.Second)
	o.Poll = cmp.Or(o.Poll, 30*time.Second)
	o.Doubt = cmp.Or(o.Doubt, 2*time.Minute)
	o.Log = cmp.Or(o.Log, slog.Default())
	return o
}

// Runner drives batches. Any number of processes may run one.
type Runner struct {
	s       *Store
	opts    Options
	log     *slog.Logger
	driving *fair // places for batches that are driven
	heavy   *fair // places for work that takes memory or time
	metrics *metrics

	mu    sync.Mutex
	taken map[string]bool // batches that are driven here, or wait to be
	turns sync.WaitGroup
}

// NewRunner returns a Runner. Call Run to start it.
func NewRunner(s *Store, o Options) *Runner {
	o = o.withDefaults()
	return &Runner{
		s: s, opts: o, log: o.Log, driving: newFair(drivenAtOnce), heavy: newFair(heavyAtOnce),
		metrics: newMetrics(o.Metrics), taken: map[string]bool{},
	}
}

const (
	// tasksName is the asynq queue of wake-ups. No pool can have this name.
	tasksName = "llmguard.batches"
	taskType  = "batch"
	// wakesAtOnce is how many wake-ups a process handles concurrently, drivenAtOnce how
	// many batches it drives concurrently, and heavyAtOnce how many of them may read or
	// write files at the same time. waitMost bounds the batches of one user that wait
	// to be driven here; the sweep wakes the others again.
	wakesAtOnce  = 8
	drivenAtOnce = 64
	heavyAtOnce  = 4
	waitMost     = 64
	// turnTime is how long one batch is driven before another may take its place.
	turnTime = time.Minute
	// overdue is how long after its creation a batch is woken by the sweep of any
	// process.
	overdue   = 5 * time.Second
	sweepMost = 1000
	endTime   = 10 * time.Second
)

// wake asks any process to drive a batch. The sweep makes up for a lost wake-up.
func (s *Store) wake(ctx context.Context, id string, in time.Duration) {
	err := s.tasks.Enqueue(ctx, taskType, []byte(id),
		asynq.Queue(tasksName), asynq.MaxRetry(1), asynq.Timeout(time.Hour), asynq.ProcessIn(in))
	if err != nil {
		s.log.WarnContext(ctx, "batch not woken, the next sweep will retry", "batch", id, "err", err)
		return
	}
	if in <= 0 {
		tasks.CallServers(ctx, s.rdb, tasksName)
	}
}

// Run drives batches until ctx is done, and returns nil.
func (r *Runner) Run(ctx context.Context) error {
	server := tasks.Server(ctx, r.s.rdb, r.log, tasksName,
		asynq.Config{Concurrency: wakesAtOnce, ShutdownTimeout: endTime})
	if err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		r.take(ctx, string(t.Payload()))
		return nil
	})); err != nil {
		return fmt.Errorf("batch: start asynq: %w", err)
	}
	tick := time.NewTicker(r.rest())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			server.Shutdown()
			r.turns.Wait()
			return nil
		case <-tick.C:
			if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
				r.log.WarnContext(ctx, "check for idle batches failed", "err", err)
			}
		}
	}
}

// sweep wakes the batches whose attention is overdue.
func (r *Runner) sweep(ctx context.Context) error {
	now := time.Now()
	ids, err := r.s.rdb.ZRangeByScore(ctx, openKey,
		redisconn.Between{Min: "-inf", Max: strconv.FormatInt(now.Unix(), 10), Count: sweepMost}).Result()
	if err != nil {
		return fmt.Errorf("batch: sweep: %w", err)
	}
	for _, id := range ids {
		if err := r.s.seeTo(ctx, id, r.rest()); err != nil {
			return err
		}
		r.s.wake(ctx, id, 0)
	}
	return nil
}

// rest is the pause before a retry after a failure.
func (r *Runner) rest() time.Duration { return r.opts.Lease / 3 }

// seeTo sets when an unfinished batch next needs attention.
func (s *Store) seeTo(ctx context.Context, id string, in time.Duration) error {
	err := s.rdb.ZAddXX(ctx, openKey, redisconn.Z{Score: float64(time.Now().Add(in).Unix()), Member: id}).Err()
	if err != nil {
		return fmt.Errorf("batch: %w", err)
	}
	return nil
}

// take gives a batch a turn in this process once its org has a place for it. A batch that
// already has a turn, or waits for one, is skipped.
func (r *Runner) take(ctx context.Context, id string) {
	r.mu.Lock()
	known := r.taken[id]
	r.taken[id] = true
	r.mu.Unlock()
	if known {
		return
	}
	org, user, err := r.s.owner(ctx, id)
	if err != nil || r.driving.waiting(org, user) >= waitMost {
		r.drop(id) // the sweep comes back to it
		return
	}
	r.turns.Go(func() {
		again, wait := r.placed(ctx, id, org, user)
		r.drop(id)
		if !again {
			return
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		_ = r.s.seeTo(end, id, wait+r.rest())
		r.s.wake(end, id, wait)
	})
}

func (r *Runner) drop(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken, id)
}

// placed waits for a place and drives the batch in it. It reports whether the batch needs
// another turn, and when.
func (r *Runner) placed(ctx context.Context, id, org, user string) (again bool, wait time.Duration) {
	p, err := r.driving.enter(ctx, org, user, nil)
	if err != nil {
		return false, 0
	}
	defer p.end()
	return r.handle(ctx, id)
}

// handle gives a batch one turn, if no other process has it. It reports whether the batch
// needs another, and when.
func (r *Runner) handle(ctx context.Context, id string) (again bool, wait time.Duration) {
	token := wire.NewCallID()
	reply, err := r.s.lease(ctx, id, token, r.opts.Lease)
	if err != nil {
		r.log.WarnContext(ctx, "batch lease not acquired", "batch", id, "err", err)
		return false, 0
	}
	switch reply {
	case "ok":
	case "busy":
		return false, 0
	default: // it has ended, or is forgotten
		r.ended(ctx, id)
		return false, 0
	}
	again, wait = r.drive(ctx, id, token)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if again {
		_, _ = r.s.lease(end, id, token, 0) // on failure it expires
	} else {
		r.ended(end, id)
	}
	return again, wait
}

// ended cleans up a batch that has ended. If that fails, the sweep comes back to it.
func (r *Runner) ended(ctx context.Context, id string) {
	if err := r.clean(ctx, id); err != nil && ctx.Err() == nil {
		r.log.WarnContext(ctx, "finished batch not cleaned up, will retry", "batch", id, "err", err)
	}
}

// owner reads the owner of a batch; "" if it is forgotten.
func (s *Store) owner(ctx context.Context, id string) (org, user string, err error) {
	found, err := s.rdb.HMGet(ctx, recordKey(id), "org", "user").Result()
	if err != nil {
		return "", "", fmt.Errorf("batch: owner: %w", err)
	}
	org, _ = found[0].(string)
	user, _ = found[1].(string)
	return org, user, nil
}

func (s *Store) lease(ctx context.Context, id, token string, d time.Duration) (string, error) {
	reply, err := leaseScript.Run(ctx, s.rdb, []string{recordKey(id)}, s.clock, token, d.Microseconds()).Text()
	if err != nil {
		return "", fmt.Errorf("batch: lease: %w", err)
	}
	return reply, nil
}

// drive runs one turn of a batch while renewing its lease. It reports whether the batch
// needs another, and when.
func (r *Runner) drive(ctx context.Context, id, token string) (again bool, wait time.Duration) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer func() { cancel(nil); <-done }()
	go func() { defer close(done); r.keep(ctx, id, token, cancel) }()

	t := newTurn(r, token)
	defer t.close()
	err := t.run(ctx, id)
	switch {
	case err == nil:
		return t.b == nil || !t.b.Status.Terminal(), t.wait
	case errors.Is(err, ErrNotFound):
		return false, 0
	case errors.Is(err, errPreempted):
		return true, 0
	case errors.Is(err, errLost) || errors.Is(context.Cause(ctx), errLost):
		return true, r.rest()
	case ctx.Err() == nil:
		r.log.WarnContext(ctx, "batch delayed, will retry", "batch", id, "err", err)
		return true, r.rest()
	}
	return true, 0
}

// keep renews the lease until ctx is done, and cancels the turn if renewals fail for too
// long.
func (r *Runner) keep(ctx context.Context, id, token string, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(r.opts.Lease / 3)
	defer tick.Stop()
	renewed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		reply, err := r.s.lease(ctx, id, token, r.opts.Lease)
		switch {
		case err == nil && reply == "ok":
			renewed = asked
			_ = r.s.seeTo(ctx, id, r.opts.Lease+r.rest())
		case err == nil, time.Since(renewed) > r.opts.Lease*2/3:
			cancel(errLost)
			return
		}
	}
}
