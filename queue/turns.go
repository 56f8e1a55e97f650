package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// A turn is an asynq task. Every job that has not ended has one in the asynq queue of its pool:
// pending while the job waits, active while it runs, in retry while it rests. Waiting turns are
// interchangeable: the job that acquire chooses takes the first one. A dead letter has an archived
// task with its id. The job's record decides; a task that is lost or one too many is replaced or
// removed (balance).
const (
	turnType = "llmguard:turn"
	deadType = "llmguard:dead"
	// turnTime is asynq's timeout of a turn; the job's own bounds are shorter.
	turnTime = 30 * 24 * time.Hour
	// turnRetries allows asynq to return the turns of dead workers any number of times.
	turnRetries = 1 << 20
	// turnLate is how long a claimed job waits for a turn. Then it runs without one: its turn
	// was lost, or Redis has no memory for asynq's writes.
	turnLate = 20 * time.Millisecond
)

// turnQueue adds turns.
type turnQueue struct {
	rdb   redis.UniversalClient
	log   *slog.Logger
	tasks *asynq.Client
	look  *asynq.Inspector
}

// turnGate couples the fetches of a worker's asynq server to the jobs that the worker has claimed: a
// fetch waits until a job of the queue is claimed, so that every active turn runs a job.
type turnGate struct {
	settings *settings

	mu    sync.Mutex
	pools map[string]*poolTurns
	kick  chan struct{}
}

func newTurnGate(s *settings) *turnGate {
	return &turnGate{settings: s, pools: map[string]*poolTurns{}, kick: make(chan struct{}, 1)}
}

// poolTurns are the turns that one pool wants from asynq.
type poolTurns struct {
	ready    []*readyClaim
	fetching int // fetches, and fetched turns that have not taken a claim yet
}

// readyClaim is a claimed job that waits for its turn.
type readyClaim struct {
	claim *Claim
	late  *time.Timer // runs it without a turn
}

// newTurns returns the turns of a queue. scripts runs the scripts of asynq's client.
func newTurns(rdb redis.UniversalClient, scripts redis.Scripter, log *slog.Logger) *turnQueue {
	return &turnQueue{
		rdb: rdb, log: log, tasks: asynq.NewClientFromRedisClient(scriptClient{rdb, scripts}),
		look: asynq.NewInspectorFromRedisClient(rdb),
	}
}

// scriptClient runs asynq's scripts together with those of concurrent callers.
type scriptClient struct {
	redis.UniversalClient
	scripts redis.Scripter
}

func (c scriptClient) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return c.scripts.EvalSha(ctx, sha1, keys, args...)
}

// add adds a turn for a job that waits. The job does not depend on it, so a failure is only logged.
func (t *turnQueue) add(ctx context.Context, pool, job string, more ...asynq.Option) {
	_, err := t.tasks.EnqueueContext(ctx, asynq.NewTask(turnType, []byte(job)), append(more, asynq.Queue(pool),
		asynq.Timeout(turnTime), asynq.MaxRetry(turnRetries))...)
	if err != nil && ctx.Err() == nil {
		t.log.DebugContext(ctx, "asynq task of a job not added, will retry", "pool", pool, "job", job, "err", err)
	}
}

// bury adds the archived task of a dead letter.
func (t *turnQueue) bury(ctx context.Context, pool, job string) {
	task := asynq.NewTask(deadType, []byte(job))
	_, err := t.tasks.EnqueueContext(ctx, task, asynq.Queue(pool), asynq.TaskID(job), asynq.Timeout(turnTime),
		asynq.MaxRetry(turnRetries), asynq.ProcessIn(turnTime)) // archived before it is due
	if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) {
		err = t.look.ArchiveTask(pool, job)
	}
	if err != nil && ctx.Err() == nil {
		t.log.DebugContext(ctx, "asynq task of a dead letter not archived, will retry", "job", job, "err", err)
	}
}

// exhume removes the archived task of a dead letter.
func (t *turnQueue) exhume(ctx context.Context, pool, job string) {
	err := t.look.DeleteTask(pool, job)
	if err != nil && !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound) {
		t.log.DebugContext(ctx, "asynq task of a dead letter not removed, will retry", "job", job, "err", err)
	}
}

// buried returns the ids of the dead letters that have an archived task.
func (t *turnQueue) buried(pool string) (map[string]bool, error) {
	ids := map[string]bool{}
	const page = 1000
	for n := 1; ; n++ {
		tasks, err := t.look.ListArchivedTasks(pool, asynq.PageSize(page), asynq.Page(n))
		for _, task := range tasks {
			ids[task.ID] = true
		}
		if err != nil || len(tasks) < page {
			return ids, err
		}
	}
}

// Pause makes workers start no more jobs of a pool until Unpause, as asynq's pause of its queue does. Jobs
// that run continue, and so do live calls.
func (q *Queue) Pause(ctx context.Context, pool string) error { return q.setPaused(ctx, pool, true) }

// Unpause ends Pause.
func (q *Queue) Unpause(ctx context.Context, pool string) error {
	err := q.setPaused(ctx, pool, false)
	if p := q.settings.pools()[pool]; p != nil && err == nil {
		q.wakeups.call(ctx, p)
	}
	return err
}

func (q *Queue) setPaused(ctx context.Context, pool string, paused bool) error {
	set, n := q.turns.look.UnpauseQueue, int64(0)
	if paused {
		set, n = q.turns.look.PauseQueue, 1
	}
	refused := set(pool) // also if it is paused, or not, already
	is, err := q.rdb.Exists(ctx, pausedKey(pool)).Result()
	if err == nil && is != n {
		err = refused
	}
	if err != nil {
		return fmt.Errorf("queue: pause of %s: %w", pool, err)
	}
	return nil
}

// of returns the turns of a pool. mu must be held.
func (t *turnGate) of(pool string) *poolTurns {
	p := t.pools[pool]
	if p == nil {
		p = &poolTurns{}
		t.pools[pool] = p
	}
	return p
}

// wait lets a claimed job wait for a turn; run runs it if none comes.
func (t *turnGate) wait(c *Claim, run func(*Claim)) {
	t.mu.Lock()
	p := t.of(c.p.ID)
	r := &readyClaim{claim: c}
	r.late = time.AfterFunc(turnLate, func() {
		if t.without(r) {
			run(c)
		}
	})
	p.ready = append(p.ready, r)
	t.mu.Unlock()
	t.wake()
}

func (t *turnGate) wake() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// wanted reports whether a pool wants one more turn, and whether any pool does. If the pool does, the
// caller must fetch one, and then call fetched or take.
func (t *turnGate) wanted(pool string) (this, any bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range t.pools {
		if len(p.ready) > p.fetching {
			any = true
			if id == pool {
				p.fetching++
				return true, true
			}
		}
	}
	return false, any
}

// fetched records that a fetch found no turn.
func (t *turnGate) fetched(pool string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(pool)
	p.fetching = max(p.fetching-1, 0)
}

// take returns the claim for a fetched turn; nil if none waits.
func (t *turnGate) take(pool string) *Claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(pool)
	p.fetching = max(p.fetching-1, 0)
	if len(p.ready) == 0 {
		return nil
	}
	r := p.ready[0]
	p.ready = p.ready[1:]
	r.late.Stop()
	return r.claim
}

// without takes a claim that has waited too long for its turn, and reports whether it still waited.
func (t *turnGate) without(r *readyClaim) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(r.claim.p.ID)
	i := slices.Index(p.ready, r)
	if i < 0 {
		return false
	}
	p.ready = slices.Delete(p.ready, i, i+1)
	return true
}

// drain returns all claims that still wait for a turn.
func (t *turnGate) drain() (claims []*Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.pools {
		for _, r := range p.ready {
			r.late.Stop()
			claims = append(claims, r.claim)
		}
		p.ready = nil
	}
	return claims
}

// turnClient is the Redis client of the asynq server that fetches turns. A fetch waits until a pool
// wants a turn. Checks of quiet pools are answered without Redis, so that an idle server costs
// little however many pools it has.
type turnClient struct {
	pollingClient
	gate *turnGate
}

// EvalSha runs a script of asynq, which is recognized by its first key.
func (c turnClient) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	pool, kind := asynqKey(keys)
	fetch := kind == "pending"
	switch kind {
	case "pending":
		this, any := c.gate.wanted(pool)
		if !any {
			c.rest(ctx, fetchEvery, c.gate.kick)
			this, _ = c.gate.wanted(pool)
		}
		if !this {
			cmd := redis.NewCmd(ctx)
			cmd.SetErr(redis.Nil)
			return cmd
		}
	case "scheduled", "retry", "completed", "lease":
		if p := c.gate.settings.pools()[pool]; p != nil && p.quiet() {
			return nothing(ctx, kind)
		}
	}
	cmd := c.UniversalClient.EvalSha(ctx, sha1, keys, args...)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return cmd // Eval follows
	}
	return c.after(ctx, cmd, pool, fetch)
}

// Eval loads a script that Redis does not know.
func (c turnClient) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	pool, kind := asynqKey(keys)
	return c.after(ctx, c.UniversalClient.Eval(ctx, script, keys, args...), pool, kind == "pending")
}

// after records what a fetch found.
func (c turnClient) after(ctx context.Context, cmd *redis.Cmd, pool string, fetch bool) *redis.Cmd {
	if err := cmd.Err(); err != nil && fetch {
		c.gate.fetched(pool)
		if !errors.Is(err, redis.Nil) {
			c.rest(ctx, failureTakes, nil)
		}
	}
	return cmd
}

// nothing is the reply of a check that finds nothing.
func nothing(ctx context.Context, kind string) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	if kind == "lease" {
		cmd.SetVal([]any{})
	} else {
		cmd.SetVal(int64(0))
	}
	return cmd
}

// asynqKey returns the queue and the kind of a script's first key, which is asynq:{queue}:kind.
func asynqKey(keys []string) (queue, kind string) {
	if len(keys) == 0 {
		return "", ""
	}
	_, rest, _ := strings.Cut(keys[0], "{")
	queue, kind, _ = strings.Cut(rest, "}:")
	return queue, kind
}
