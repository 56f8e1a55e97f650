package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
)

// ErrNotFound is returned for a job that does not exist, has expired after its ResultTTL,
// or belongs to another org.
var ErrNotFound = errors.New("queue: no such job")

// reader reads single jobs and their places among the waiting ones.
type reader struct {
	rdb      redisconn.DB
	reads    *coalescedCommands // job reads, looks and memory share a connection
	settings *settings
	scripts  *scripts
	own      *ownedPools
}

// endings ends jobs that no worker ends: cancelled and overdue ones. It releases what was
// held for them and announces their end.
type endings struct {
	rdb     redisconn.DB
	opts    *Options
	log     *slog.Logger
	metrics *metrics
	memory  *capacity.Memory
	ends    chan struct{} // signals that a job with a notice ended in this process

	settings *settings
	scripts  *scripts
	contents *contents
	reader   *reader
}

// job returns a job of the org.
func (r *reader) job(ctx context.Context, org, id string) (*Job, error) {
	p := r.own.poolOf(ctx, org, id)
	if p == nil {
		return nil, ErrNotFound
	}
	j, err := r.load(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if j == nil || j.Org != org {
		return nil, ErrNotFound
	}
	return j, nil
}

// load returns a job, or nil if there is none. A job whose worker died is reported as
// waiting although its record still says running.
func (r *reader) load(ctx context.Context, p *pool, id string) (*Job, error) {
	var read func() (*Job, error)
	if err := r.reads.exec(ctx, func(pipe redisconn.Pipe) { read = p.read(ctx, pipe, id) }); err != nil {
		return nil, fmt.Errorf("queue: read job: %w", err)
	}
	j, err := read()
	if err != nil {
		return nil, err
	}
	return j, addCosts(ctx, r.rdb, j)
}

// read adds the commands that read a job to a pipeline. The returned function decodes the
// replies.
func (p *pool) read(ctx context.Context, pipe redisconn.Pipe, id string) func() (*Job, error) {
	record := pipe.HGetAll(ctx, jobKey(p.ID, id))
	claimed := pipe.HExists(ctx, p.keys[3], id)
	cancelled := pipe.HExists(ctx, p.keys[10], id)
	return func() (*Job, error) {
		if err := cmp.Or(record.Err(), claimed.Err(), cancelled.Err()); err != nil {
			return nil, fmt.Errorf("queue: read job: %w", err)
		}
		j, err := decodeJob(p.ID, id, record.Val())
		if j != nil && j.State == Running && !claimed.Val() {
			j.State = Queued
		}
		if j != nil {
			j.Cancelling = cancelled.Val() && !j.State.Terminal()
		}
		return j, err
	}
}

// Cancel ends a waiting job of the org immediately. If a worker holds a claim on it,
// running or about to run, Cancel notifies that worker: the job is then Cancelling and ends
// when the claim does. Either way the job never waits or runs again. Cancel returns the job
// as it is afterwards; a job that had already ended is unchanged. See Ended.
func (q *Queue) Cancel(ctx context.Context, org, id string) (*Job, error) {
	return q.places.endFor(ctx, org, id, "cancelled")
}

// Ended waits until a job has ended or ctx is done, and returns its last known state. The
// error is ErrNotFound or comes from Redis; a job that is still running when ctx ends is
// not an error.
func (q *Queue) Ended(ctx context.Context, j *Job) (*Job, error) {
	wake, leave := q.hub.Listen(jobChannel(j.ID), 1)
	defer leave()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for !j.State.Terminal() {
		now, err := q.reader.job(ctx, j.Org, j.ID)
		switch {
		case ctx.Err() != nil:
			return j, nil
		case err != nil:
			return nil, err
		case now.State.Terminal():
			return now, nil
		}
		j = now
		select {
		case <-ctx.Done():
		case <-wake:
		case <-poll.C:
		}
	}
	return j, nil
}

// counted returns the cause and the time as which the wait of a job is counted; none if it is not. While the job ran,
// its caller may have been refused, which took the wait back.
func (r *reader) counted(ctx context.Context, j *Job) (budget.Cause, time.Time) {
	if j.WaitAt.IsZero() {
		return "", j.WaitAt
	}
	text, err := r.rdb.HGet(context.WithoutCancel(ctx), jobKey(j.Pool, j.ID), "wait").Result()
	cause, at := parseWait(text)
	if err != nil || at.IsZero() {
		cause = ""
	}
	return cause, at
}

// cancel ends a waiting job or notifies the worker that has claimed it. why is one of the
// reasons in cancel.lua. An empty org matches any org. It returns the state in which it ended the job;
// empty if it did not.
func (en *endings) cancel(ctx context.Context, p *pool, id, why, org string) (State, error) {
	reply, err := en.scripts.eval(ctx, "cancel", cancelScript, p.with(jobKey(p.ID, id)),
		id, why, org, p.ResultTTL.Milliseconds(), cancelChannel(p.ID))
	state, ended := strings.CutPrefix(reply, "ended ")
	if !ended {
		return "", err
	}
	en.metrics.ended.WithLabelValues(p.ID, state).Inc()
	en.settleEnded(ctx, p, id)
	return State(state), err
}

// refuse counts a job that has expired as refused by what it waited for. The proxy of a connected caller does so.
func (en *endings) refuse(ctx context.Context, p *pool, id string) {
	j, err := en.reader.load(ctx, p, id)
	if err != nil || j == nil || j.Class == Interactive && !j.ByDeadline || en.opts.Refused == nil {
		return
	}
	c := j.Refusing()
	c.Status = j.Error.Status
	c.Before, c.Since = en.reader.counted(ctx, j)
	en.opts.Refused(c)
}

// endOverdue ends waiting jobs that are past their deadline or whose caller has gone, and
// lets the script correct the pools' totals. Every process does this; the script acts once
// per job.
func (en *endings) endOverdue(ctx context.Context) {
	for _, p := range en.settings.pools() {
		if p.quiet() {
			continue
		}
		reply, err := en.scripts.eval(ctx, "overdue", overdueScript, p.keys, 500, en.opts.Grace.Microseconds())
		if err != nil {
			en.log.WarnContext(ctx, "check for overdue jobs failed", "pool", p.ID, "err", err)
			continue
		}
		w, _ := words("overdue", reply, 0)
		for _, word := range w {
			why := "caller_gone"
			if word[0] == 'e' {
				why = "expired"
			}
			state, err := en.cancel(ctx, p, word[1:], why, "")
			if err != nil {
				en.log.WarnContext(ctx, "overdue job not ended", "job", word[1:], "err", err)
				break
			}
			if state == Expired {
				en.refuse(ctx, p, word[1:])
			}
		}
	}
}

// Job returns a job of the org.
func (q *Queue) Job(ctx context.Context, org, id string) (*Job, error) {
	return q.reader.job(ctx, org, id)
}
