package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/llmguard/llmguard/providers"
)

// shift is one Run of a Worker: a crew for each pool. Only set and end, which
// Run's goroutine calls one after the other, touch its maps.
type shift struct {
	w       *Worker
	ctx     context.Context // Run's own: no job is begun after it
	runCtx  context.Context // of the jobs
	keepCtx context.Context // of what keeps their claims
	setup   *setup          // the last that was looked at
	crews   map[string]*crew
	told    map[string]bool // pools whose cancellations are listened for

	background, leaving sync.WaitGroup
}

// crew is what runs the jobs of one pool.
type crew struct {
	most   int // handlers
	server *asynq.Server
	pacer  *pacer
}

// retryCrews is the pause after crews could not be put right.
const retryCrews = time.Second

// SetConcurrency replaces WorkerOptions.Concurrency. A pool whose number changes gets
// new handlers; the jobs of the old ones go on.
func (w *Worker) SetConcurrency(byPool map[string]int) {
	w.mu.Lock()
	w.most = byPool
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// handlers is how many a pool is to have; negative leaves it out.
func (w *Worker) handlers(pool string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	configured, _ := providers.SplitPool(pool)
	if n := w.most[configured]; n != 0 {
		return n
	}
	return defaultConcurrency
}

// watch puts the crews right whenever that is asked for, until ctx is done.
func (s *shift) watch() {
	var again <-chan time.Time
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.w.changed:
		case <-s.setup.replaced:
		case <-again:
		}
		again = nil
		if err := s.set(); err != nil {
			s.w.q.log.ErrorContext(s.ctx, "a pool has no handlers yet", "err", err)
			again = time.After(retryCrews)
		}
	}
}

// set gives every pool the crew it is to have. Pools that left the setup keep
// theirs.
func (s *shift) set() error {
	s.setup = s.w.q.now()
	pools := s.setup.pools
	for _, id := range slices.Sorted(maps.Keys(pools)) {
		most, old := s.w.handlers(id), s.crews[id]
		if old != nil && old.most == most {
			continue
		}
		if most > 0 {
			c, err := s.start(pools[id], most)
			if err != nil {
				return err
			}
			s.crews[id] = c
		} else {
			delete(s.crews, id)
		}
		if old != nil {
			s.retire(old)
		}
	}
	return nil
}

// start begins to run the jobs of a pool.
func (s *shift) start(p *pool, most int) (*crew, error) {
	w := s.w
	pc := newPacer(w.q, p, most)
	server := w.q.Server(s.ctx, p.ID, most, w.opts.TaskCheckInterval, w.opts.ShutdownTimeout+abortTime)
	if err := server.Start(asynq.HandlerFunc(func(tctx context.Context, _ *asynq.Task) error {
		w.handle(tctx, s.runCtx, pc)
		return nil
	})); err != nil {
		return nil, fmt.Errorf("queue: start asynq for pool %q: %w", p.ID, err)
	}
	s.background.Go(func() { pc.run(s.ctx) })
	if !s.told[p.ID] {
		s.told[p.ID] = true
		messages, leave := w.q.hub.listen(cancelChannel(p.ID), 1000)
		s.background.Go(func() {
			defer leave()
			w.obeyCancels(s.keepCtx, messages)
		})
	}
	return &crew{most: most, server: server, pacer: pc}, nil
}

// retire lets a crew finish what it runs and then go. Its server is shut down
// only when it is idle, because that has a deadline and its jobs have not.
func (s *shift) retire(c *crew) {
	c.server.Stop()
	c.pacer.halt()
	s.leaving.Go(func() {
		look := time.NewTicker(50 * time.Millisecond)
		defer look.Stop()
		for c.pacer.busy.Load() > 0 && s.ctx.Err() == nil {
			select {
			case <-s.ctx.Done():
			case <-look.C:
			}
		}
		c.server.Shutdown()
	})
}

// end waits for the jobs of all crews.
func (s *shift) end() {
	for _, c := range s.crews { // each waits for its handlers
		s.leaving.Go(c.server.Shutdown)
	}
	s.leaving.Wait()
}
