package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/tasks"
	"github.com/llmguard/llmguard/providers"
)

// workerPool is one Run of a Worker: a crew for each pool, and one asynq server whose queues are
// the pools. Only set and end touch its maps, and Run's goroutine calls them one after the other.
type workerPool struct {
	w        *Worker
	ctx      context.Context // Run's own: no job starts after it is done
	runCtx   context.Context // of the jobs
	keepCtx  context.Context // of the goroutines that renew their claims
	setup    *workerSetup    // the last one applied
	crews    map[string]*poolWorkers
	told     map[string]bool // pools whose cancellations are listened to
	differ   map[string]bool // of balanceAll: pools whose tasks and jobs may differ
	balances int             // of balanceAll: how many there were
	tasks    *tasks.Worker

	background, pacers, handlers sync.WaitGroup
}

// poolWorkers runs the jobs of one pool.
type poolWorkers struct {
	most  int // maximum number of handlers
	pacer *pacer
}

// SetConcurrency replaces WorkerOptions.Concurrency. A pool whose number changes gets new
// handlers; the jobs of the old ones continue.
func (w *Worker) SetConcurrency(byPool map[string]int) {
	w.mu.Lock()
	w.most = byPool
	w.mu.Unlock()
	signal(w.changed)
}

// handlers returns how many handlers a pool should have; negative leaves it out.
func (w *Worker) handlers(pool string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	configured, _ := providers.SplitPool(pool)
	if n := w.most[configured]; n != 0 {
		return n
	}
	return defaultConcurrency
}

// watch updates the crews whenever that is requested, until ctx is done.
func (s *workerPool) watch() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.w.changed:
		case <-s.setup.replaced:
		}
		s.set()
	}
}

// set gives every pool its crew. Pools that left the setup keep theirs. The jobs of a
// replaced crew continue.
func (s *workerPool) set() {
	s.setup = s.w.q.settings.now()
	pools := s.setup.pools
	changed := false
	for _, id := range slices.Sorted(maps.Keys(pools)) {
		most, old := s.w.handlers(id), s.crews[id]
		if old != nil && old.most == most {
			continue
		}
		changed = true
		delete(s.crews, id)
		if most > 0 {
			s.crews[id] = s.start(pools[id], most)
		}
		if old != nil {
			old.pacer.halt()
		}
	}
	if changed {
		handlers := map[string]int{}
		for id, crew := range s.crews {
			handlers[id] = crew.most
		}
		s.tasks.Serve(handlers)
	}
}

// start begins running the jobs of a pool.
func (s *workerPool) start(p *pool, most int) *poolWorkers {
	w := s.w
	pc := newPacer(w.q, p, most)
	pc.give = func(c *Claim) {
		c.pacer = pc
		s.handlers.Add(1)
		s.tasks.Run(p.ID, c.id, func() error { return s.run(c) })
	}
	called, unsubscribe := w.q.hub.Listen(workChannel(p.ID), 1)
	pc.called = called
	pc.stopped = w.opts.Stopped
	s.pacers.Go(func() {
		defer unsubscribe()
		pc.run(s.ctx)
	})
	if !s.told[p.ID] {
		s.told[p.ID] = true
		messages, leave := w.q.hub.Listen(cancelChannel(p.ID), 1000)
		s.background.Go(func() {
			defer leave()
			w.obeyCancels(s.keepCtx, messages)
		})
	}
	return &poolWorkers{most: most, pacer: pc}
}

// end waits for the jobs of all crews, which may continue for ShutdownTimeout and then have
// abortTime to end.
func (s *workerPool) end() {
	s.pacers.Wait()
	done := make(chan struct{})
	go func() {
		s.handlers.Wait()
		s.tasks.Shutdown()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(s.w.opts.ShutdownTimeout + abortTime):
	}
}
