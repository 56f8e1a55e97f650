package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// FullError refuses a job: the queue holds as many as it may.
type FullError struct {
	// Scope is what is full: jobs or bytes of the pool, org_jobs or org_bytes
	// of the org in it, flow_jobs or flow_bytes of the user; memory of Redis, or
	// org_memory, the share of it of the org; tokens when the job alone exceeds the
	// minute's quota. Limit is a percentage for those of memory, and bytes where it
	// means never.
	Scope string
	Limit int64
	// RetryAfter is the time the quota needs for what waits; 0 means never, see Final.
	RetryAfter time.Duration
}

// TooLarge refuses a call that no waiting helps, because it alone is more than the
// provider takes in a minute; advice is what else to say to its caller.
func TooLarge(tpm int64, advice string) *wire.Error {
	return wire.QuotaExceeded(fmt.Sprintf("The call alone exceeds the provider's %d tokens per minute: "+
		"shorten the prompt or lower max_completion_tokens (or max_tokens).%s", tpm, advice))
}

// tooLargeForMemory refuses a call that no waiting helps, because it and its answer are
// more than its org may ever have in Redis.
func tooLargeForMemory(most int64) *wire.Error {
	return wire.QuotaExceeded(fmt.Sprintf("The call and its largest possible answer exceed the %d bytes that one org "+
		"may have in the store (queue.memory_share, queue.memory_org_share): send less, or ask for fewer inputs, images "+
		"or output tokens", most))
}

// Final is the answer to a call that no waiting helps, nil when waiting may. Advice is what
// else to say to its caller.
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

// NewID returns a new job id of a pool, from which the pool can be told; "" for
// an unknown pool.
func (q *Queue) NewID(poolID string) string {
	p := q.settings.pools()[poolID]
	if p == nil {
		return ""
	}
	return jobPrefix + p.code + wire.NewCallID()
}

// DerivedID returns the job id of a pool that belongs to a seed, always the
// same; "" for an unknown pool. Whoever puts a job again after a crash finds it
// there.
func (q *Queue) DerivedID(poolID, seed string) string {
	p := q.settings.pools()[poolID]
	if p == nil {
		return ""
	}
	return jobPrefix + p.code + letters(seed)[:ulidLen]
}

// Put stores a job and its body and lets it wait. It is idempotent on j.ID,
// which comes from NewID. It sets State, Created, Deadline (an earlier one than
// the pool's is kept) and Bytes of j. The
// error is a *FullError, about j itself, or of Redis; after one of Redis the
// job may be waiting, and another Put or Cancel with its id settles that.
//
// An interactive job is dropped when no Watch of it has been open for
// Options.Grace.
func (q *Queue) Put(ctx context.Context, j *Job, body []byte) error {
	p, err := q.admission.checkJob(j)
	if err != nil {
		return err
	}
	if p.TPM > 0 && j.Tokens > p.TPM {
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
	args := append([]any{
		j.ID, uint8(j.Class), j.Org, j.User, j.Tokens, j.Bytes, age.Microseconds(), lane(j.Key, j.Model),
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
		p.stir() // endOverdue sees whether that many jobs are there
		return fullError(w)
	}
	j.State, j.Created = Queued, instant(w[1])
	j.Deadline = j.Created.Add(age)
	q.metrics.puts.WithLabelValues(p.ID, "queued").Inc()
	p.stir()
	return nil
}

// fullError reads put.lua's "full <scope> <limit> <us>".
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
