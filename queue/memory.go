package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/wire"
)

// Options.Memory admits a job's data in Redis before it is written: its body when it is
// put, its answer when it is claimed and as it grows. When the job ends, what remains of
// both is counted until it expires or is deleted.

const (
	// recordBytes is about what Redis needs for a job or an answer in addition to its
	// contents.
	recordBytes = 1 << 10
	// taskBytes is about what Redis needs for the asynq task of a job that has not ended.
	taskBytes = 512
	// refBytes is an upper bound for the size of a ref.
	refBytes = 256
	// firstAnswer is reserved for every job's answer, so that most answers need no
	// further request.
	firstAnswer = 4 << 10
	// reserveTime bounds a reservation request.
	reserveTime = 2 * time.Second
	// fullPatience is how long output that a full Redis refuses is sent again. After
	// that the job ends without it.
	fullPatience = time.Minute
	// fullRest is the longest pause between those attempts, and how long jobs wait
	// whose answers do not fit.
	fullRest = 5 * time.Second
)

// errNotKept ends a job whose answer fits neither in Redis nor in files.store. It is a 410,
// which no SDK retries: the call was paid for.
var errNotKept = wire.Gone("answer_not_kept",
	"The call was completed and charged, but there was no room to store its answer. Delete older results, or request "+
		"less output")

// admission decides whether a job may be put and whether there is memory for it.
type admission struct {
	opts     *Options
	metrics  *metrics
	memory   *capacity.Memory
	settings *settings
}

// bytes returns the size of a job in Redis without its answer.
func (j *Job) bytes() int64 { return j.recordBytes() + taskBytes + j.bodyBytes() }

func (j *Job) recordBytes() int64 {
	return recordBytes + int64(len(j.Query)+len(j.Notice)+len(j.Model)) + headerBytes(j.Header)
}

func (j *Job) bodyBytes() int64 {
	if j.away {
		return refBytes
	}
	return j.Bytes
}

func headerBytes(h http.Header) (n int64) {
	for name, values := range h {
		for _, v := range values {
			n += int64(len(name) + len(v))
		}
	}
	return n
}

// life returns how long the body of a job of the pool is kept.
func (p *pool) life() time.Duration { return p.MaxAge + p.ResultTTL + runLife }

// admit reserves memory for a job's body and the first part of its answer.
func (a *admission) admit(ctx context.Context, p *pool, j *Job) error {
	if err := a.fits(ctx, j, j.Answer); err != nil {
		return err
	}
	return a.memory.Reserve(ctx, j.Org, j.ID, capacity.Bytes{Reserved: firstAnswer, Written: j.bytes()}, p.life())
}

// fits returns a *capacity.FullError if memory can never hold the job and its answer. With
// a store for large answers, only the first part of the answer counts.
func (a *admission) fits(ctx context.Context, j *Job, answer int64) error {
	answer = min(answer, a.opts.MaxOutput)
	if a.opts.Blobs != nil || answer < firstAnswer {
		answer = firstAnswer
	}
	return a.memory.Fits(ctx, j.bytes()+answer)
}

// full converts a lack of memory into the refusal of a job and counts it. Other errors are
// returned unchanged.
func (a *admission) full(p *pool, err error) error {
	if !capacity.IsFull(err) {
		return err
	}
	a.metrics.puts.WithLabelValues(p.ID, "full").Inc()
	return refusal(err)
}

// memoryRest is the advised pause before a caller retries after a lack of memory.
const memoryRest = 10 * time.Second

// refusal converts a lack of memory into a *FullError.
func refusal(err error) *FullError {
	out := &FullError{Scope: "memory", RetryAfter: memoryRest}
	if full, ok := errors.AsType[*capacity.FullError](err); ok {
		out.Limit = int64(full.Share)
		if full.Org {
			out.Scope = "org_memory"
		}
		if full.Never {
			out.Limit, out.RetryAfter = full.Free, 0
		}
	}
	return out
}

// Reserve reserves n bytes of Redis memory for the answer before the attempt starts. The
// error is a *capacity.FullError or comes from Redis. With a store for large answers a lack
// of memory is not an error: what does not fit in Redis goes there.
func (c *Claim) Reserve(ctx context.Context, n int64) error {
	n = min(n, c.q.opts.MaxOutput)
	if n <= c.answer {
		return nil
	}
	err := c.reserve(ctx, n)
	if capacity.IsFull(err) {
		if c.q.opts.Blobs != nil {
			return nil
		}
		// The org's share may have shrunk since the job was put.
		if never := c.q.admission.fits(ctx, c.Job, n); capacity.IsFull(never) {
			return never
		}
	}
	if err == nil {
		c.answer = n
	}
	return err
}

// noRoom returns the verdict for a job whose answer does not fit: the job waits, together
// with its user's other jobs for the model, while other users' jobs may need less. A job
// that can never fit fails.
func noRoom(err error) Verdict {
	if full, ok := errors.AsType[*capacity.FullError](err); ok && full.Never {
		return failed(tooLargeForMemory(full.Free))
	}
	if capacity.IsFull(err) {
		return Verdict{Kind: Park, Scope: ParkFlowModel, Wait: fullRest, Unused: true}
	}
	return Verdict{Kind: Requeue, Wait: storeRest, Unused: true}
}

// Sizes in a JSON answer: of a token, and of a token as a stream event.
const (
	tokenBytes = 8
	eventBytes = 320
	// streamBytes is the most reserved before a stream begins: few calls generate all
	// the output they may.
	streamBytes = 1 << 20
)

// AnswerBytes estimates the largest answer of a call. A larger answer reserves more as it
// grows.
func AnswerBytes(p *guard.Plan) int64 {
	switch size := p.Request.Endpoint.Traits().AnswerBytes; {
	case size != nil:
		return size(p.Request)
	case p.Request.Stream:
		return min(p.Output*eventBytes, streamBytes)
	}
	return p.Output*tokenBytes + recordBytes
}

// shrink releases what was reserved for an answer before its job waits again.
func (c *Claim) shrink(ctx context.Context) error {
	if c.answer <= firstAnswer {
		return nil
	}
	if err := c.reserve(ctx, firstAnswer); err != nil &&
		!capacity.IsFull(err) { // shrinking is refused only if the reservation was lost
		return err
	}
	c.answer = firstAnswer
	return nil
}

func (c *Claim) reserve(ctx context.Context, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, reserveTime)
	defer cancel()
	return c.q.memory.Reserve(ctx, c.Job.Org, c.id, capacity.Bytes{Reserved: n, Written: c.Job.bytes()}, c.p.life())
}

// settle records what remains in Redis of a job that this claim ended: its record, its
// answer, and its body if it may still be needed.
func (c *Claim) settle(state State, dead bool) {
	if c.Job == nil {
		return
	}
	c.done = state == Succeeded || c.Job.Class == Interactive && !dead
	if c.Recovered != nil { // the answer's size is unknown: the reservation remains
		return
	}
	s := capacity.Settled{ID: c.id, Written: c.Job.bytes(), Life: c.p.life(), Released: c.Job.Class == Batch}
	if c.done {
		s.Written, s.Life = c.Job.recordBytes(), c.p.ResultTTL
	}
	if dead {
		s.Life = max(s.Life, c.q.settings.now().opts.DeadTTL)
	}
	if c.output != nil {
		s.Written += c.output.kept()
	}
	c.settled = &s
}

// settleEnded counts what remains of a job that ended before a worker ran it. The body of
// an interactive job is deleted.
func (en *endings) settleEnded(ctx context.Context, p *pool, id string) {
	s := capacity.Settled{ID: id, Written: capacity.AsBefore, Life: p.life(), Released: true}
	class, err := en.rdb.HGet(ctx, jobKey(p.ID, id), "class").Int()
	if err == nil && Class(class) == Interactive {
		en.contents.unlinkBodies(ctx, []string{id})
		s.Written = recordBytes
		s.Life = p.ResultTTL
		s.Released = false
	}
	if err := en.memory.Settle(ctx, s); err != nil {
		en.log.DebugContext(ctx, "memory of a finished job not released, it will expire", "job", id, "err", err)
	}
}

// keyBytes is about what Redis needs for the record of an idempotency key.
const keyBytes = 640

// Records reserves memory for the records of idempotency keys.
type Records struct{ memory *capacity.Memory }

// Reserve reserves memory for the record of an org's idempotency key, before the call with
// the given id is made. Queue.KeepAnswer, Keep or Drop end the reservation; it expires
// after ttl. The error is a *FullError or comes from Redis.
func (r *Records) Reserve(ctx context.Context, org, id string, ttl time.Duration) error {
	err := r.memory.Reserve(ctx, org, id, capacity.Bytes{Reserved: keyBytes}, ttl)
	var full *capacity.FullError
	if errors.As(err, &full) {
		return refusal(full)
	}
	if err != nil {
		return fmt.Errorf("queue: reserve record: %w", err)
	}
	return nil
}

// Keep counts a record that is kept for ttl without an answer.
func (r *Records) Keep(ctx context.Context, id string, ttl time.Duration) error {
	return r.memory.Settle(ctx, capacity.Settled{ID: id, Written: keyBytes, Life: ttl})
}

// Drop releases the reservation of a record that is not kept.
func (r *Records) Drop(ctx context.Context, id string) error { return r.memory.Release(ctx, id) }
