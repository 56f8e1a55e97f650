package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/tasks"
)

// run runs a claimed job, or returns it to the queue if the worker ends. Its error is what becomes of the job:
// see package tasks.
func (s *workerPool) run(c *Claim) error {
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

// balanceEvery is the interval between two comparisons of tasks and jobs.
const balanceEvery = time.Second / 2

const (
	// balanceAllEvery is how many comparisons pass before quiet pools are compared, too.
	balanceAllEvery = 120
	// maxArchived is how many archived tasks asynq keeps, maxBuried how many are added or removed at once.
	maxArchived, maxBuried = 9_999, 200
)

// balanceAll compares tasks and jobs in all pools that are not quiet, or that still differ; once a minute in all.
func (s *workerPool) balanceAll(ctx context.Context) {
	pools := s.w.q.settings.pools()
	ids := slices.Sorted(maps.Keys(pools))
	all := s.balances%balanceAllEvery == 0
	s.balances++
	if all && len(ids) > 0 {
		if err := s.w.q.tasks.Register(ctx, ids...); err != nil && ctx.Err() == nil {
			s.w.q.log.DebugContext(ctx, "queues not registered with asynq, will retry", "err", err)
		}
	}
	for _, id := range ids {
		p := pools[id]
		if p.quiet() && !s.differ[id] && !all || ctx.Err() != nil {
			continue
		}
		differ, err := s.balance(ctx, p)
		s.differ[id] = differ || err != nil
		if err != nil && ctx.Err() == nil {
			s.w.q.log.DebugContext(ctx, "asynq tasks not compared with jobs, will retry", "pool", id, "err", err)
		}
	}
}

// balance adds the tasks that a pool lacks and removes those without a job: of jobs that were
// cancelled while they waited, of dead workers, of messages lost by Redis. It reports whether they may differ.
func (s *workerPool) balance(ctx context.Context, p *pool) (bool, error) {
	q := s.w.q
	keys := append(slices.Clone(p.keys), turnsKey(p.ID))
	for _, list := range []string{"pending", "active", "lease", "scheduled", "retry", "archived"} {
		keys = append(keys, tasks.Key(p.ID, list))
	}
	now := time.Now()
	reply, err := q.scripts.eval(ctx, "balance", balanceScript, keys, (balanceEvery - balanceEvery/10).Microseconds(),
		tasks.Key(p.ID, "t:"), now.Unix(), now.UnixNano(), maxArchived)
	if err != nil || reply == "" {
		return true, err
	}
	var lacks, rests, dead, differ int
	if _, err := fmt.Sscan(reply, &lacks, &rests, &dead, &differ); err != nil {
		return true, fmt.Errorf("queue: balance replied %q", reply)
	}
	err = q.tasks.AddLost(ctx, p.ID, lacks, 0)
	if err == nil {
		err = q.tasks.AddLost(ctx, p.ID, rests, p.MaxAge) // removed once the job waits again
	}
	if err != nil {
		return true, err
	}
	if dead == 1 {
		return true, s.balanceDead(ctx, p)
	}
	return differ == 1, nil
}

// balanceDead gives every dead letter of a pool its archived task, and removes other archived tasks.
func (s *workerPool) balanceDead(ctx context.Context, p *pool) error {
	q := s.w.q
	ids, err := q.rdb.ZRevRange(ctx, p.deadKey(), 0, maxArchived-1).Result()
	if err != nil {
		return fmt.Errorf("queue: dead letters of %s: %w", p.ID, err)
	}
	if err := q.tasks.Register(ctx, p.ID); err != nil {
		return err
	}
	buried, err := q.tasks.Buried(p.ID)
	if err != nil {
		return fmt.Errorf("queue: archived tasks of %s: %w", p.ID, err)
	}
	done := 0
	for _, id := range ids {
		if buried[id] {
			delete(buried, id)
			continue
		}
		done++
		if ctx.Err() != nil || done > maxBuried {
			return ctx.Err() // the rest next time
		}
		if q.tasks.Wanted(p.ID, id) {
			err = s.replayRun(ctx, id)
		} else {
			err = q.tasks.Bury(ctx, p.ID, id)
		}
		if err != nil {
			return err
		}
	}
	for id := range buried {
		done++
		if ctx.Err() != nil || done > maxBuried {
			break
		}
		q.tasks.Exhume(ctx, p.ID, id)
	}
	return ctx.Err()
}

// replayRun replays a dead letter whose archived task was run with asynq's tools.
func (s *workerPool) replayRun(ctx context.Context, id string) error {
	_, err := s.w.q.Replay(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrNotDead):
		return nil
	case err != nil:
		return tasks.Rests(storeRest)
	}
	return nil
}

// SetPaused pauses a pool, as asynq's pause of its queue does: workers start none of its jobs until the pause is
// ended. Jobs that run continue, and so do live calls.
func (q *Queue) SetPaused(ctx context.Context, pool string, paused bool) error {
	err := q.tasks.SetPaused(ctx, pool, paused)
	if p := q.settings.pools()[pool]; p != nil && err == nil && !paused {
		q.wakeups.call(ctx, p)
	}
	return err
}
