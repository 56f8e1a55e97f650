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
	// turnLate is how long a claimed job waits for a turn that a fetch has not found. Then it
	// starts without one: its turn was lost, or Redis has no memory for asynq's writes.
	turnLate = 20 * time.Millisecond
	// turnStuck is how long a claimed job waits for an asynq server that does not fetch at all.
	turnStuck = time.Second
	// lateFetch is the interval between fetches for jobs that run without a turn.
	lateFetch = 250 * time.Millisecond
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
	kick  chan struct{} // closed, and replaced, when a claim starts to wait
}

// poolTurns are the turns that one pool wants from asynq.
type poolTurns struct {
	ready    []*readyClaim
	fetching int       // tasks requested from Redis
	fetched  []string  // tasks that asynq has not requested yet
	handed   int       // tasks that have not reached their handler yet
	again    time.Time // of the next fetch, after one that found nothing
}

// readyClaim is a claimed job that waits for its turn, or runs without one until it comes.
type readyClaim struct {
	claim   *Claim
	late    *time.Timer  // starts it without a turn
	missed  bool         // a fetch found no turn for it
	running bool         // without a turn
	end     chan turnEnd // of its run without a turn, for the handler of a turn that came later
}

func newTurnGate(s *settings) *turnGate {
	return &turnGate{settings: s, pools: map[string]*poolTurns{}, kick: make(chan struct{})}
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

// lacks returns how many claims wait for a turn that nobody fetches yet.
func (p *poolTurns) lacks() int { return len(p.ready) - p.handed - len(p.fetched) - p.fetching }

// pop hands a fetched turn to asynq; "" if there is none.
func (p *poolTurns) pop() (task string) {
	if len(p.fetched) > 0 {
		task, p.fetched = p.fetched[0], p.fetched[1:]
		p.handed++
	}
	return task
}

// wait lets a claimed job wait for a turn. If none comes, run starts it without one.
func (t *turnGate) wait(c *Claim, run func(*readyClaim)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(c.p.ID)
	r := &readyClaim{claim: c, end: make(chan turnEnd, 1)}
	r.late = time.AfterFunc(turnStuck, func() {
		if t.start(r) {
			run(r)
		}
	})
	p.ready = append(p.ready, r)
	p.again = time.Time{}
	close(t.kick)
	t.kick = make(chan struct{})
}

// next returns a fetched turn of a pool, or how many turns to fetch; fetched must follow. With neither, the
// caller waits for kick, at most for the given time.
func (t *turnGate) next(pool string) (task string, n int, kick chan struct{}, rest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rest = fetchEvery
	for id, p := range t.pools {
		until := time.Until(p.again)
		switch {
		case len(p.fetched) == 0 && p.lacks() <= 0:
		case len(p.fetched) == 0 && until > 0:
			rest = min(rest, until)
		case id != pool:
			rest = 0
		case len(p.fetched) > 0:
			return p.pop(), 0, nil, 0
		default:
			n = p.lacks()
			p.fetching += n
			return "", n, nil, 0
		}
	}
	return "", 0, t.kick, rest
}

// fetched records the turns that a fetch of n has found, and hands one to asynq; "" if there is none.
func (t *turnGate) fetched(pool string, n int, tasks []string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(pool)
	p.fetching -= n
	p.fetched = append(p.fetched, tasks...)
	if len(tasks) < n {
		p.miss()
	}
	return p.pop()
}

// miss lets claims for which a fetch has found no turn start soon without one. mu must be held.
func (p *poolTurns) miss() {
	p.again = time.Now().Add(lateFetch)
	for _, r := range p.ready[min(p.handed+len(p.fetched), len(p.ready)):] {
		if !r.running {
			p.again = time.Time{}
		}
		if !r.missed {
			r.missed = true
			r.late.Reset(turnLate)
		}
	}
}

// take returns the claim for a turn that has reached its handler; nil if none waits.
func (t *turnGate) take(pool string) *readyClaim {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(pool)
	p.handed = max(p.handed-1, 0)
	if len(p.ready) == 0 {
		return nil
	}
	r := p.ready[0]
	p.ready = p.ready[1:]
	r.late.Stop()
	return r
}

// back returns a claim whose turn was none.
func (t *turnGate) back(r *readyClaim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(r.claim.p.ID)
	p.ready = slices.Insert(p.ready, 0, r)
	if !r.running {
		r.late.Reset(turnLate)
	}
}

// start marks a claim as running without a turn, and reports whether it still waited for one.
func (t *turnGate) start(r *readyClaim) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.running = !r.running && slices.Contains(t.of(r.claim.p.ID).ready, r)
	return r.running
}

// leave removes a claim that has run without a turn, and reports whether none has come.
func (t *turnGate) leave(r *readyClaim) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(r.claim.p.ID)
	i := slices.Index(p.ready, r)
	if i >= 0 {
		p.ready = slices.Delete(p.ready, i, i+1)
	}
	return i >= 0
}

// turnClient is the Redis client of the asynq server that fetches turns. A fetch waits until a pool
// wants a turn, and then requests as many as the pool wants at once. Checks of quiet pools are answered
// without Redis, so that an idle server costs little however many pools it has.
type turnClient struct {
	pollingClient
	scripts redis.Scripter // runs the scripts of concurrent turns together
	gate    *turnGate
}

// EvalSha runs a script of asynq, which is recognized by its first key.
func (c turnClient) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	pool, kind := asynqKey(keys)
	switch kind {
	case "pending":
		return c.fetch(ctx, pool, sha1, keys, args)
	case "scheduled", "retry", "completed", "lease":
		if p := c.gate.settings.pools()[pool]; p != nil && p.quiet() {
			return nothing(ctx, kind)
		}
	}
	return c.scripts.EvalSha(ctx, sha1, keys, args...)
}

// fetch answers asynq's request for a task of a pool.
func (c turnClient) fetch(ctx context.Context, pool, sha1 string, keys []string, args []any) *redis.Cmd {
	task, n, kick, rest := c.gate.next(pool)
	if rest > 0 {
		c.rest(ctx, rest, kick)
		task, n, _, _ = c.gate.next(pool)
	}
	if n > 0 {
		pipe := c.UniversalClient.Pipeline()
		cmds := make([]*redis.Cmd, n)
		for i := range cmds {
			cmds[i] = pipe.EvalSha(ctx, sha1, keys, args...)
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		var tasks []string
		for _, cmd := range cmds {
			if text, err := cmd.Text(); err == nil {
				tasks = append(tasks, text)
			}
		}
		task = c.gate.fetched(pool, n, tasks)
		switch last := cmds[n-1]; {
		case task != "", errors.Is(last.Err(), redis.Nil):
		case redis.HasErrorPrefix(last.Err(), "NOSCRIPT"):
			return last // Eval follows
		default:
			c.rest(ctx, failureTakes, nil)
		}
	}
	return fetched(ctx, task)
}

// fetched is the reply of a fetch.
func fetched(ctx context.Context, task string) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	if task == "" {
		cmd.SetErr(redis.Nil)
	} else {
		cmd.SetVal(task)
	}
	return cmd
}

// Eval loads and runs a script that Redis does not know.
func (c turnClient) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	cmd := c.UniversalClient.Eval(ctx, script, keys, args...)
	pool, kind := asynqKey(keys)
	if task, err := cmd.Text(); kind == "pending" && err == nil {
		return fetched(ctx, c.gate.fetched(pool, 0, []string{task}))
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
