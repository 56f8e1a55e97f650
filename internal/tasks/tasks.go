// Package tasks is what llmguard knows of asynq: servers that cost little while idle, and the tasks of
// jobs.
//
// Every job that has not ended has one task in the asynq queue of its pool: pending while the job
// waits, active while it runs, in retry while it rests. Waiting tasks are interchangeable: a task is a
// turn, and the job that is claimed next takes the first one. A dead letter has an archived task
// with its id. The job's record decides; package queue replaces tasks that are lost and removes those
// without a job.
package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/asynqdriver"
)

const (
	jobType  = "llmguard:turn"
	deadType = "llmguard:dead"
	// jobTime is asynq's timeout of a task; a job's own bounds are shorter.
	jobTime = 30 * 24 * time.Hour
	// jobRetries allows asynq to return the tasks of dead workers any number of times.
	jobRetries = 1 << 20
)

// Jobs adds and removes the tasks of jobs. It is safe for concurrent use. Jobs do not depend on their
// tasks, so failures are only logged.
type Jobs struct {
	rdb     redisconn.DB
	scripts redisconn.Scripter
	log     *slog.Logger
	client  asynqdriver.Client
	look    asynqdriver.Inspector
}

// New returns the tasks of jobs in Redis. scripts runs the scripts of concurrent callers together.
func New(rdb redisconn.DB, scripts redisconn.Scripter, log *slog.Logger) *Jobs {
	return &Jobs{
		rdb: rdb, scripts: scripts, log: log, client: asynqdriver.NewClient(rdb, scripts),
		look: asynqdriver.NewInspector(rdb),
	}
}

// Key returns a key of the asynq queue of a pool, which is in the pool's slot.
func Key(pool, name string) string { return "asynq:{" + pool + "}:" + name }

// PausedKey returns the key that exists while the asynq queue of a pool is paused.
func PausedKey(pool string) string { return Key(pool, "paused") }

// Add adds a task for a job that waits, or that rests if rest is positive.
func (t *Jobs) Add(ctx context.Context, pool, job string, rest time.Duration) {
	_ = t.enqueue(ctx, pool, jobType, job, asynq.ProcessIn(rest-early)) // logged
}

// AddLost is Add for n jobs of which the ids are not known. It stops at the first failure.
func (t *Jobs) AddLost(ctx context.Context, pool string, n int, rest time.Duration) error {
	for range n {
		if err := t.enqueue(ctx, pool, jobType, "", asynq.ProcessIn(rest-early)); err != nil {
			return err
		}
	}
	return nil
}

// Register makes asynq's tools show the queues of pools. Asynq does it once per process, and Redis may lose it.
func (t *Jobs) Register(ctx context.Context, pools ...string) error {
	if err := t.rdb.SAdd(ctx, "asynq:queues", pools).Err(); err != nil {
		return fmt.Errorf("tasks: register queues: %w", err)
	}
	return nil
}

func (t *Jobs) enqueue(ctx context.Context, pool, kind, job string, more ...asynq.Option) error {
	err := t.client.Enqueue(ctx, kind, []byte(job), append(more, asynq.Queue(pool), asynq.Timeout(jobTime),
		asynq.MaxRetry(jobRetries))...)
	if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil
	}
	t.log.DebugContext(ctx, "asynq task of a job not added, will retry", "pool", pool, "err", err)
	return fmt.Errorf("tasks: add: %w", err)
}

// Bury adds the archived task of a dead letter.
func (t *Jobs) Bury(ctx context.Context, pool, job string) error {
	err := t.enqueue(ctx, pool, deadType, job, asynq.TaskID(job), asynq.ProcessIn(jobTime))
	if err != nil {
		return err
	}
	if err := t.look.ArchiveTask(pool, job); err != nil {
		t.log.DebugContext(ctx, "asynq task of a dead letter not archived, will retry", "job", job, "err", err)
		return fmt.Errorf("tasks: archive: %w", err)
	}
	return nil
}

// Exhume removes the task of a dead letter.
func (t *Jobs) Exhume(ctx context.Context, pool, job string) {
	err := t.look.DeleteTask(pool, job)
	if err != nil && !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound) {
		t.log.DebugContext(ctx, "asynq task of a dead letter not removed, will retry", "job", job, "err", err)
	}
}

// Buried returns the ids of the dead letters of a pool that have an archived task.
func (t *Jobs) Buried(pool string) (map[string]bool, error) {
	ids := map[string]bool{}
	const page = 1000
	for n := 1; ; n++ {
		tasks, err := t.look.ListArchivedTasks(pool, asynq.PageSize(page), asynq.Page(n))
		for _, task := range tasks {
			ids[task.ID] = true
		}
		if errors.Is(err, asynq.ErrQueueNotFound) {
			return ids, nil
		}
		if err != nil || len(tasks) < page {
			return ids, err
		}
	}
}

// Wanted reports whether somebody runs the task of a dead letter with asynq's tools.
func (t *Jobs) Wanted(pool, job string) bool {
	task, err := t.look.GetTaskInfo(pool, job)
	return err == nil && task.State != asynq.TaskStateScheduled && task.State != asynq.TaskStateArchived
}

// SetPaused pauses the asynq queue of a pool or ends its pause, also if that is so already.
func (t *Jobs) SetPaused(ctx context.Context, pool string, paused bool) error {
	set, n := t.look.UnpauseQueue, int64(0)
	if paused {
		set, n = t.look.PauseQueue, 1
	}
	refused := set(pool)
	is, err := t.rdb.Exists(ctx, PausedKey(pool)).Result()
	if err == nil && is != n {
		err = refused
	}
	if err != nil {
		return fmt.Errorf("tasks: pause of %s: %w", pool, err)
	}
	return nil
}
