package queue

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Step is one round of what Run does again and again: it renews grants and the presence
// of callers, ends what is overdue, and takes ended grants off the books. It is for those
// who drive a Queue by a clock of their own, as simulations do, instead of Run.
func (q *Queue) Step(ctx context.Context) {
	var wg sync.WaitGroup
	for _, part := range []func(context.Context){q.quota.Step, q.presence.stepPresence, q.endings.endOverdue} {
		wg.Go(func() { part(ctx) })
	}
	wg.Wait()
}

// stepPresence renews presence, and tries again soon, as keepPresence does.
func (pr *presence) stepPresence(ctx context.Context) {
	for range 5 {
		if pr.renewPresence(ctx) == nil || ctx.Err() != nil {
			return
		}
		time.Sleep(pr.opts.Grace / 15)
	}
}

// Step asks for at most n jobs of a pool and runs each in a goroutine. It is for those who
// drive a Worker by a clock of their own, instead of Run; not for concurrent use.
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

// Keep is one round of what keeps the claims of a Worker that Step drives.
func (w *Worker) Keep(ctx context.Context) {
	w.renewAll(ctx)
	w.forgetBodies(ctx)
}
