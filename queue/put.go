package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
)

// FullError refuses a job because a bound of the queue is reached.
type FullError struct {
	// Scope is what is full: jobs or bytes of the pool; org_jobs or org_bytes of the
	// org in it; flow_jobs or flow_bytes of the user; memory, that of Redis;
	// org_memory, the org's share of it; tokens, if the job alone exceeds the minute's
	// quota. Limit is a percentage for the memory scopes, or bytes if the job can never
	// fit.
	Scope string
	Limit int64
	// RetryAfter is the time the quota needs for the waiting jobs; 0 means never, see
	// Final.
	RetryAfter time.Duration
}

// Cause returns what is full.
func (e *FullError) Cause() budget.Cause {
	switch e.Scope {
	case "memory":
		return budget.NewCause(budget.CauseMemory, budget.MemoryStore)
	case "org_memory":
		return budget.NewCause(budget.CauseMemory, budget.MemoryOrg)
	}
	return budget.NewCause(budget.CauseQueue, e.Scope)
}

// TooLarge refuses a call that waiting cannot help, because it alone exceeds what the
// provider accepts in a minute. advice is appended to the message.
func TooLarge(tpm int64, advice string) *wire.Error {
	return wire.QuotaExceeded(fmt.Sprintf("The call alone exceeds the provider's %d tokens per minute: "+
		"shorten the prompt or lower max_completion_tokens (or max_tokens).%s", tpm, advice))
}

// tooLargeForMemory refuses a call that waiting cannot help, because the call and its
// answer exceed what its org may ever store in Redis.
func tooLargeForMemory(most int64) *wire.Error {
	return wire.QuotaExceeded(fmt.Sprintf("The call and its largest possible answer exceed the %d bytes that one org "+
		"may store (queue.memory_share, queue.memory_org_share). Send less, or request fewer inputs, images or output "+
		"tokens", most))
}

// Final returns the answer to a call that waiting cannot help, or nil if waiting may help.
// advice is appended to the message.
func (e *FullError) Final(advice string) *wire.Error {
	switch {
	case e.RetryAfter > 0:
		return nil
	case e.Scope == "org_memory":
		return tooLargeForMemory(e.Limit)
	}
	return TooLarge(e.Limit, advice)
}

func (e *FullError) Error() string {
	return fmt.Sprintf("queue: full (%s, limit %d), retry after %s", e.Scope, e.Limit, e.RetryAfter)
}

// NewID returns a new job id of a pool, which identifies the pool; "" for an unknown pool.
func (q *Queue) NewID(poolID string) string {
	p := q.settings.pools()[poolID]
	if p == nil {
		return ""
	}
	return jobPrefix + p.code + wire.NewCallID()
}

// DerivedID returns the job id in a pool that belongs to a seed, always the same; "" for an
// unknown pool. A caller that puts the job again after a crash finds it there.
func (q *Queue) DerivedID(poolID, seed string) string {
	p := q.settings.pools()[poolID]
	if p == nil {
		return ""
	}
	return jobPrefix + p.code + letters(seed)[:ulidLen]
}

// Put stores a job and its body and queues it. It is idempotent on j.ID, which must come
// from NewID. It sets State, Created, Deadline (an earlier one than the pool's is kept) and
// Bytes of j. The error is a *FullError, an error about j itself, or comes from Redis.
// After an error of Redis the job may be waiting; another Put or a Cancel with its id
// settles that.
//
// An interactive job is dropped once no Watch of it has been open for Options.Grace.
func (q *Queue) Put(ctx context.Context, j *Job, body []byte) error {
	p, err := q.admission.checkJob(j)
	if err != nil {
		return err
	}
	if !p.Split && p.TPM > 0 && j.Tokens > p.TPM { // of input, any part may be in a cache
		return &FullError{Scope: "tokens", Limit: p.TPM}
	}
	if err := q.own.announceOwn(ctx, p); err != nil {
		return err
	}
	given, err := j.given()
	if err != nil {
		return err
	}
	j.Bytes = int64(len(body))
	if err := q.contents.writeBody(ctx, p, j, body); err != nil {
		return q.admission.full(p, err)
	}
	age := p.MaxAge
	if !j.Deadline.IsZero() {
		age = min(age, max(time.Until(j.Deadline), time.Millisecond))
	}
	byDeadline := 0
	if j.ByDeadline && !j.Deadline.IsZero() {
		byDeadline = 1
	}
	args := append([]any{
		j.ID, uint8(j.Class), j.Org, j.User, j.Tokens, j.Bytes, age.Microseconds(),
		lane(j.Key, j.Model) + j.Priority.Mark(), byDeadline,
	}, given...)
	reply, err := p.puts.do(ctx, q, p, jobKey(p.ID, j.ID), args...)
	if err != nil {
		return err
	}
	w, err := words("put", reply, 2)
	if err != nil {
		return err
	}
	if w[0] != "ok" {
		q.contents.dropBody(ctx, j)
		q.metrics.puts.WithLabelValues(p.ID, "full").Inc()
		p.stir() // lets endOverdue check whether there really are that many jobs
		return fullError(w)
	}
	j.State, j.Created = Queued, instant(w[1])
	j.Deadline = j.Created.Add(age)
	q.metrics.puts.WithLabelValues(p.ID, "queued").Inc()
	p.stir()
	q.tasks.Add(ctx, p.ID, j.ID, 0)
	return nil
}

// fullError decodes put.lua's "full <scope> <limit> <us>".
func fullError(w []string) error {
	if len(w) < 4 {
		return fmt.Errorf("queue: put replied %q", w)
	}
	limit, _ := strconv.ParseInt(w[2], 10, 64)
	if w[1] == "tokens" {
		return &FullError{Scope: w[1], Limit: limit}
	}
	return &FullError{Scope: w[1], Limit: limit, RetryAfter: min(max(micros(w[3]), time.Second), 10*time.Minute)}
}

func (a *admission) checkJob(j *Job) (*pool, error) {
	p, err := a.settings.pool(j.Pool)
	if err != nil {
		return nil, err
	}
	if idCode(j.ID) != p.code {
		return nil, fmt.Errorf("queue: %q is no job id of pool %q; use NewID", j.ID, p.ID)
	}
	if j.Class < Interactive || j.Class > Batch {
		return nil, fmt.Errorf("queue: job %s has no class", j.ID)
	}
	if j.Tokens < 0 || j.Tokens > 1<<50 {
		return nil, fmt.Errorf("queue: job %s has %d tokens", j.ID, j.Tokens)
	}
	return p, errors.Join(checkPlain("org", j.Org), checkPlain("user", j.User))
}
