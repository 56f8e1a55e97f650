package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/tasks"
	"github.com/llmguard/llmguard/internal/wire"
)

// ErrNotDead is returned by Replay for a job that is not a dead letter.
var ErrNotDead = errors.New("queue: the job is not a dead letter")

// deadLetters manages the jobs that failed and can be replayed.
type deadLetters struct {
	rdb      redisconn.DB
	log      *slog.Logger
	settings *settings
	tasks    *tasks.Jobs
}

// DeadLetters returns the dead letters of a pool, newest first: jobs that failed through no
// fault of their request, or whose attempts all died. It returns at most limit of them,
// older than the job `after` if that is not empty, and whether there are more.
func (q *Queue) DeadLetters(ctx context.Context, poolID, after string, limit int) ([]*Job, bool, error) {
	p, err := q.settings.pool(poolID)
	if err != nil {
		return nil, false, err
	}
	ids, more, err := q.lister.page(ctx, p.deadKey(), after, limit)
	if err != nil {
		return nil, false, err
	}
	jobs := make([]*Job, 0, len(ids))
	for _, id := range ids {
		j, err := q.reader.load(ctx, p, id)
		if errors.Is(err, ErrNewer) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if j != nil {
			jobs = append(jobs, j)
		}
	}
	return jobs, more, nil
}

// Replay puts a dead letter's request into the queue again as a new job with all its
// attempts available, and removes the dead letter from the list. The dead job keeps its
// terminal state and names its successor in Job.Replay; the successor names it in
// Job.Origin. Replay is idempotent: repeated, it returns the same new job. An interactive
// job is replayed as Async because its caller is gone. Errors are ErrNotFound (also if the
// body is gone), ErrNotDead, *FullError, or come from Redis.
func (q *Queue) Replay(ctx context.Context, id string) (*Job, error) {
	p := q.settings.codes()[idCode(id)]
	if p == nil {
		return nil, ErrNotFound
	}
	old, err := q.reader.load(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if old == nil {
		return nil, ErrNotFound
	}
	next := old.Replay
	if next == "" {
		next, err = q.dead.nameReplay(ctx, p, id, q.NewID(p.ID))
		if err != nil {
			return nil, err
		}
	}
	if done, err := q.reader.load(ctx, p, next); err != nil || done != nil {
		return done, errors.Join(err, q.dead.forgetDead(ctx, p, id))
	}
	body, err := q.Body(ctx, old)
	if err != nil {
		return nil, err
	}
	j := &Job{
		ID: next, Pool: old.Pool, Org: old.Org, User: old.User, Key: old.Key, CallID: wire.NewCallID(),
		Born: old.Born, UserBorn: old.UserBorn,
		Class: max(old.Class, Async), Endpoint: old.Endpoint, Model: old.Model, Stream: old.Stream,
		Tokens: old.Tokens, Cost: old.Cost, IP: old.IP, Labels: old.Labels, Run: old.Run,
		Header: old.Header, Query: old.Query, Notice: old.Notice,
		Origin: old.ID, Priority: old.Priority,
	}
	if err := q.Put(ctx, j, body); err != nil {
		return nil, err
	}
	return j, q.dead.forgetDead(ctx, p, id)
}

// nameReplay sets the id of a dead letter's successor. The first one set wins.
func (d *deadLetters) nameReplay(ctx context.Context, p *pool, id, fresh string) (string, error) {
	if err := d.rdb.ZScore(ctx, p.deadKey(), id).Err(); err != nil {
		if redisconn.IsNil(err) {
			return "", ErrNotDead
		}
		return "", fmt.Errorf("queue: replay: %w", err)
	}
	if err := d.rdb.HSetNX(ctx, jobKey(p.ID, id), "replay", fresh).Err(); err != nil {
		return "", fmt.Errorf("queue: replay: %w", err)
	}
	next, err := d.rdb.HGet(ctx, jobKey(p.ID, id), "replay").Result()
	if err != nil {
		return "", fmt.Errorf("queue: replay: %w", err)
	}
	return next, nil
}

// forgetDead removes a job from the list of dead letters.
func (d *deadLetters) forgetDead(ctx context.Context, p *pool, id string) error {
	if err := d.rdb.ZRem(ctx, p.deadKey(), id).Err(); err != nil {
		return fmt.Errorf("queue: replay: %w", err)
	}
	d.tasks.Exhume(ctx, p.ID, id)
	return nil
}

// keep extends the life of a dead letter's body and cost to that of its record. On failure they
// keep their current TTL.
func (d *deadLetters) keep(ctx context.Context, j *Job) {
	life := d.settings.now().opts.DeadTTL
	err := errors.Join(d.rdb.PExpire(ctx, bodyKey(j.ID), life).Err(), budget.KeepJobCost(ctx, d.rdb, j.Org, j.ID, life))
	if err != nil {
		d.log.WarnContext(ctx, "lifetime of a dead letter's body or cost not extended", "job", j.ID, "err", err)
	}
}

func (p *pool) deadKey() string { return p.keys[21] }

// page returns at most limit ids of a sorted set, highest first, after the given one, and
// whether there are more.
func (l *lister) page(ctx context.Context, key, after string, limit int) ([]string, bool, error) {
	var from int64
	if after != "" {
		rank, err := l.rdb.ZRevRank(ctx, key, after).Result()
		if redisconn.IsNil(err) {
			return nil, false, ErrNotFound
		}
		if err != nil {
			return nil, false, fmt.Errorf("queue: list: %w", err)
		}
		from = rank + 1
	}
	limit = min(max(limit, 1), 1000)
	ids, err := l.rdb.ZRevRange(ctx, key, from, from+int64(limit)).Result()
	if err != nil {
		return nil, false, fmt.Errorf("queue: list: %w", err)
	}
	return ids[:min(len(ids), limit)], len(ids) > limit, nil
}
