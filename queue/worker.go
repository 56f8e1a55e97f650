package queue

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/spool"
)

// WorkerOptions are the settings of a Worker.
type WorkerOptions struct {
	// Concurrency is how many jobs of a pool run concurrently in this process. A pool
	// that is not listed or has 0 gets 64; a negative number leaves the pool out. An
	// org's own pool gets as many as the configured one it derives from.
	Concurrency map[string]int
	// ShutdownTimeout is how long running jobs may continue after Run's context is
	// done, before their contexts are cancelled with ErrShutdown. 0 is 30 s.
	ShutdownTimeout time.Duration
	// Stopped, if set, reports whether all spending is stopped. Meanwhile no job is
	// claimed.
	Stopped func() bool
}

const (
	defaultConcurrency = 64
	renewRetry         = time.Second
	newerRest          = time.Second      // for a newer worker to take a job of its own version
	abortTime          = 10 * time.Second // for runs to end after ErrShutdown
)

// Worker runs jobs. It has one pacer per pool and one goroutine that renews all claims.
type Worker struct {
	q      *Queue
	runner func(context.Context, *Claim) Verdict
	opts   WorkerOptions

	changed chan struct{} // requests an update of the crews

	mu   sync.Mutex
	most map[string]int // handlers by pool, as WorkerOptions.Concurrency
	live map[*Claim]struct{}
	done map[string]struct{} // ended jobs whose bodies are to be deleted
	kept []capacity.Settled  // what remains of ended jobs

	steps map[string]*pacer // pacers of Step, by pool
}

// NewWorker returns a worker that runs claims of q's pools with runner. The runner's
// context is cancelled when the claim is lost (ErrLost), the job is cancelled
// (ErrCancelled), its caller has left a started stream (ErrCallerGone) or the worker must
// end (ErrShutdown); see context.Cause. A panic in the runner counts as a dead attempt.
func NewWorker(q *Queue, runner func(context.Context, *Claim) Verdict, opts WorkerOptions) *Worker {
	opts.ShutdownTimeout = cmp.Or(opts.ShutdownTimeout, 30*time.Second)
	return &Worker{
		q: q, runner: runner, opts: opts, changed: make(chan struct{}, 1), most: opts.Concurrency,
		live: make(map[*Claim]struct{}), done: make(map[string]struct{}), steps: make(map[string]*pacer),
	}
}

// Run works until ctx is done, lets running jobs end within ShutdownTimeout, and returns
// nil. The queue's own Run must run at the same time, and at least as long.
func (w *Worker) Run(ctx context.Context) error {
	runCtx, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	keepCtx, stopKeeping := context.WithCancel(runCtx)
	defer stopKeeping()
	s := &workerPool{
		w: w, ctx: ctx, runCtx: runCtx, keepCtx: keepCtx, crews: map[string]*poolWorkers{},
		told: map[string]bool{}, differ: map[string]bool{},
	}
	s.tasks = w.q.tasks.NewWorker(ctx, func(id string) bool {
		p := w.q.settings.pools()[id]
		return p != nil && p.quiet()
	}, s.replayRun)
	s.set()
	s.background.Go(func() { w.keep(keepCtx) })
	s.background.Go(func() { every(keepCtx, balanceEvery, s.balanceAll) })
	s.watch()
	late := time.AfterFunc(w.opts.ShutdownTimeout, func() { abort(ErrShutdown) })
	defer late.Stop()
	s.end()
	stopKeeping()
	s.background.Wait()
	last, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer done()
	w.forgetBodies(last)
	return nil
}

// run executes one claim.
func (w *Worker) run(ctx context.Context, c *Claim) {
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.ctx, c.cancel = runCtx, cancel
	w.mu.Lock()
	w.live[c] = struct{}{}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.live, c)
		w.mu.Unlock()
	}()
	verdict := Verdict{Kind: Requeue, Unused: true}
	c.readBody(runCtx)
	defer c.dropBody()
	switch {
	case c.unread == nil && c.never > 0 && c.Recovered == nil:
		verdict = Verdict{Kind: Fail, Error: TooLarge(c.never, "")}
	case c.unread == nil:
		verdict = w.call(runCtx, c)
	case errors.Is(c.unread, errContentGone):
		verdict = failed(errContentGone)
	case errors.Is(c.unread, ErrNewer):
		verdict.Wait = newerRest
	case !errors.Is(c.unread, ErrGone):
		verdict.Wait = storeRest
	}
	// Retry for as long as Redis is unavailable: without a recorded verdict the job
	// runs again.
	end, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(abortTime/2, stop) })()
	err := c.conclude(end, verdict)
	if c.settled != nil {
		w.mu.Lock()
		w.kept = append(w.kept, *c.settled)
		w.mu.Unlock()
	}
	if err != nil {
		w.q.log.WarnContext(ctx, "job result not recorded", "job", c.id, "attempt", c.Job.Attempt, "err", err)
		return
	}
	switch {
	case c.done && c.away: // the reference first
		w.q.contents.unlinkBodies(end, []string{c.id})
		w.q.contents.removeBlobs(end, c.Job.Org, bodyBlob(c.id))
	case c.done:
		w.mu.Lock()
		w.done[c.id] = struct{}{}
		w.mu.Unlock()
	}
	if c.unread != nil && !errors.Is(c.unread, ErrGone) && !spool.NoRoom(c.unread) {
		w.q.log.WarnContext(ctx, "claimed job not read", "job", c.id, "err", c.unread)
	}
}

// call runs the runner. A panic is logged and leaves no verdict.
func (w *Worker) call(ctx context.Context, c *Claim) (v Verdict) {
	defer func() {
		if r := recover(); r != nil {
			w.q.log.ErrorContext(ctx, "runner panicked", "job", c.id, "panic", r, "stack", string(debug.Stack()))
			v = Verdict{Wait: time.Second}
		}
	}()
	return w.runner(ctx, c)
}

// keep renews the claims of running jobs, cancels the runs whose claims are lost or whose
// jobs are cancelled, and deletes bodies, until ctx is done. Runs continue while Redis is
// unavailable: during an outage no worker can take their claims (acquire). If only this
// worker was cut off and another took them, the next renewal reports it.
func (w *Worker) keep(ctx context.Context) {
	every := w.q.opts.Lease / 3
	renew := time.NewTimer(every)
	defer renew.Stop()
	forget := time.NewTicker(time.Second)
	defer forget.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-renew.C:
			next := every
			if !w.renewAll(ctx) {
				next = min(every, renewRetry)
			}
			renew.Reset(next)
		case <-forget.C:
			w.forgetBodies(ctx)
		}
	}
}

// obeyCancels renews immediately when a job of a pool was cancelled; the reply says which.
func (w *Worker) obeyCancels(ctx context.Context, messages <-chan string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-messages:
		}
		for len(messages) > 0 {
			<-messages
		}
		w.renewAll(ctx)
	}
}

// renewAll renews every live claim, one call per pool, and obeys the replies. It reports
// whether all claims were renewed or are known to be lost.
func (w *Worker) renewAll(ctx context.Context) bool {
	byPool := make(map[*pool][]*Claim)
	w.mu.Lock()
	for c := range w.live {
		byPool[c.p] = append(byPool[c.p], c)
	}
	w.mu.Unlock()
	all := true
	for p, claims := range byPool {
		pairs := make([]any, 0, 2*len(claims))
		for _, c := range claims {
			pairs = append(pairs, c.id, c.token)
		}
		letters, err := w.q.scripts.renew(ctx, p, pairs)
		all = all && err == nil
		if err != nil && ctx.Err() == nil {
			w.q.log.WarnContext(ctx, "claims not renewed, will retry", "pool", p.ID, "err", err)
		}
		for i := range letters {
			if why := lost[letters[i]]; why != nil {
				claims[i].cancel(why)
			}
		}
	}
	return all
}

// lost is why a run ends, by lease.lua's letters for claims.
var lost = map[byte]error{'l': ErrLost, 'c': ErrCancelled, 'g': ErrCallerGone}

func (w *Worker) forgetBodies(ctx context.Context) {
	w.mu.Lock()
	ids, kept := slices.Collect(maps.Keys(w.done)), w.kept
	clear(w.done)
	w.kept = nil
	w.mu.Unlock()
	w.q.contents.unlinkBodies(ctx, ids)
	for part := range slices.Chunk(kept, settleMost) {
		if err := w.q.memory.Settle(ctx, part...); err != nil {
			w.q.log.DebugContext(ctx, "memory of finished jobs not released, will retry", "err", err)
			w.mu.Lock()
			w.kept = append(w.kept, part...)
			w.mu.Unlock()
		}
	}
}

// settleMost is how many jobs one run of the script settles.
const settleMost = 200

// renewMost is how many claims one command renews.
const renewMost = 500

// renew extends the leases of claims, given as pairs of id and token, and returns one
// letter of lease.lua for each.
func (s *scripts) renew(ctx context.Context, p *pool, pairs []any) (string, error) {
	keys := []string{p.keys[1], p.keys[2], p.keys[3], p.keys[10], p.keys[6]}
	var letters string
	for some := range slices.Chunk(pairs, 2*renewMost) {
		args := append([]any{s.opts.Lease.Microseconds()}, some...)
		part, err := s.eval(ctx, "lease", leaseScript, keys, args...)
		if err != nil {
			return letters, err
		}
		letters += part
	}
	return letters, nil
}
