package queue

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Step does one round of what Run does repeatedly: it renews grants and the presence of
// callers, ends overdue jobs, and releases ended grants. Simulations, which drive a Queue
// by their own clock, use it instead of Run.
func (q *Queue) Step(ctx context.Context) {
	var wg sync.WaitGroup
	for _, part := range []func(context.Context){q.quota.Step, q.presence.stepPresence, q.endings.endOverdue} {
		wg.Go(func() { part(ctx) })
	}
	wg.Wait()
}

// stepPresence renews presence and retries on failure, as keepPresence does.
func (pr *presence) stepPresence(ctx context.Context) {
	for range 5 {
		if pr.renewPresence(ctx) == nil || ctx.Err() != nil {
			return
		}
		time.Sleep(pr.opts.Grace / 15)
	}
}

// Step requests at most n jobs of a pool and runs each in a goroutine. Simulations, which
// drive a Worker by their own clock, use it instead of Run. It is not safe for concurrent
// use.
func (w *Worker) Step(ctx context.Context, pool string, n int) error {
	pc := w.steps[pool]
	if pc == nil {
		p, err := w.q.settings.pool(pool)
		if err != nil {
			return err
		}
		pc = newPacer(w.q, p, n)
		w.steps[pool] = pc
	}
	got, err := pc.acquire(ctx, n)
	if err != nil {
		return fmt.Errorf("queue: step: %w", err)
	}
	w.q.contents.fetch(ctx, pc.p, got.claims)
	for _, c := range got.claims {
		go w.run(ctx, c)
	}
	return nil
}

// Keep does one round of maintaining the claims of a Worker that is driven by Step.
func (w *Worker) Keep(ctx context.Context) {
	w.renewAll(ctx)
	w.forgetBodies(ctx)
}
