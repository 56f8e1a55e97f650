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

// What a job has in Redis is admitted by Options.Memory before it is written: its body
// when it is put, its answer when it is claimed and as it grows. At the job's end what
// stays of both is counted until it expires, or is forgotten.

const (
	// recordBytes is about what Redis needs for a job or an answer beside its contents.
	recordBytes = 1 << 10
	// refBytes is more than a ref has.
	refBytes = 256
	// firstAnswer is admitted for the answer of every job, so that most need not ask again.
	firstAnswer = 4 << 10
	// reserveTime bounds a request for room.
	reserveTime = 2 * time.Second
	// fullPatience is for how long what a full Redis refuses is sent again. Then the job
	// ends without it.
	fullPatience = time.Minute
	// fullRest is the longest pause before it is sent again, and that of jobs whose
	// answers have no room.
	fullRest = 5 * time.Second
)

// errNotKept ends a job whose answer Redis and files.store have no room for. No SDK
// repeats a 410: it was paid for.
var errNotKept = wire.Gone("answer_not_kept",
	"The call was completed and charged, but there was no room for its answer. Fetch or delete older results, or ask "+
		"for less")

// admission says whether a job may be put, and whether its bytes have room.
type admission struct {
	opts     *Options
	metrics  *metrics
	memory   *capacity.Memory
	settings *settings
}

// bytes is what a job has in Redis without its answer.
func (j *Job) bytes() int64 { return j.recordBytes() + j.bodyBytes() }

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

// life is how long the body of a job of the pool is kept.
func (p *pool) life() time.Duration { return p.MaxAge + p.ResultTTL + runLife }

// admit admits a job's body, and the beginning of its answer.
func (a *admission) admit(ctx context.Context, p *pool, j *Job) error {
	if err := a.fits(ctx, j, j.Answer); err != nil {
		return err
	}
	return a.memory.Reserve(ctx, j.Org, j.ID, capacity.Bytes{Reserved: firstAnswer, Written: j.bytes()}, p.life())
}

// fits returns a *capacity.FullError when memory can never have a job and its answer. Where
// there is a store for large answers, that is only the beginning of the answer.
func (a *admission) fits(ctx context.Context, j *Job, answer int64) error {
	answer = min(answer, a.opts.MaxOutput)
	if a.opts.Blobs != nil || answer < firstAnswer {
		answer = firstAnswer
	}
	return a.memory.Fits(ctx, j.bytes()+answer)
}

// full is the refusal of a job that memory has no room for. Any other error is itself.
func (a *admission) full(p *pool, err error) error {
	if !capacity.IsFull(err) {
		return err
	}
	a.metrics.puts.WithLabelValues(p.ID, "full").Inc()
	return refusal(err)
}

// memoryRest is when to try again what memory had no room for.
const memoryRest = 10 * time.Second

// refusal says why memory has no room.
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

// Reserve admits an answer of so many bytes into Redis, before the attempt starts. The
// error is a *capacity.FullError, or of Redis. Where there is a store for large answers it
// is none: what has no room in Redis goes there.
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
		if never := c.q.admission.fits(ctx, c.Job, n); capacity.IsFull(never) { // its share was larger when it was put
			return never
		}
	}
	if err == nil {
		c.answer = n
	}
	return err
}

// noRoom says what becomes of a job whose answer is not admitted: it waits, and with it
// its user's others for the model. Those of others may need less. One that can never be
// admitted fails.
func noRoom(err error) Verdict {
	if full, ok := errors.AsType[*capacity.FullError](err); ok && full.Never {
		return failed(tooLargeForMemory(full.Free))
	}
	if capacity.IsFull(err) {
		return Verdict{Kind: Park, Scope: ParkFlowModel, Wait: fullRest, Unused: true}
	}
	return Verdict{Kind: Requeue, Wait: storeRest, Unused: true}
}

// Bytes of a JSON answer: of a token, of one as an event of a stream, of a vector as text
// or as base64, of an image or a piece of sound.
const (
	tokenBytes  = 8
	eventBytes  = 320
	vectorBytes = 64 << 10
	base64Bytes = 18 << 10
	mediaBytes  = 4 << 20
	// streamBytes is admitted at most before a stream begins: few put out all they may.
	streamBytes = 1 << 20
)

// AnswerBytes is about the greatest answer of a call. A greater one asks for more as it
// grows.
func AnswerBytes(p *guard.Plan) int64 {
	r := p.Request
	switch {
	case r.Endpoint == wire.Embeddings && r.EncodingFormat == "base64":
		return int64(max(r.InputItems, 1)) * base64Bytes
	case r.Endpoint == wire.Embeddings:
		return int64(max(r.InputItems, 1)) * vectorBytes
	case r.Endpoint.Pictures(), r.Endpoint == wire.Speech:
		return max(r.N, 1) * mediaBytes
	case r.Stream:
		return min(p.Output*eventBytes, streamBytes)
	}
	return p.Output*tokenBytes + recordBytes
}

// shrink gives back what was admitted for an answer, before its job waits again.
func (c *Claim) shrink(ctx context.Context) error {
	if c.answer <= firstAnswer {
		return nil
	}
	if err := c.reserve(ctx, firstAnswer); err != nil &&
		!capacity.IsFull(err) { // less is refused only where the count is lost
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

// settle notes what stays in Redis of a job that this claim has ended: its record, its
// answer, and its body where somebody may ask for it.
func (c *Claim) settle(state State, dead bool) {
	if c.Job == nil {
		return
	}
	c.done = state == Succeeded || c.Job.Class == Interactive && !dead
	if c.Recovered != nil { // the answer's size is not known: what was admitted stays
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

// settleEnded counts what stays of a job that ended before any worker ran it. Of the body
// of one that a caller waited for that is nothing.
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
		en.log.DebugContext(ctx, "memory of an ended job not settled, it expires", "job", id, "err", err)
	}
}

// keyBytes is about what Redis needs for the record of an idempotency key.
const keyBytes = 640

// Records admits the records of idempotency keys into the memory of the store.
type Records struct{ memory *capacity.Memory }

// Reserve admits the record of an idempotency key of the org before the call is made
// whose id is given. Queue.KeepAnswer, Keep or Drop end the reservation, at the
// latest it ends after ttl. The error is a *FullError or of Redis.
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

// Keep counts a record that stays for ttl without an answer.
func (r *Records) Keep(ctx context.Context, id string, ttl time.Duration) error {
	return r.memory.Settle(ctx, capacity.Settled{ID: id, Written: keyBytes, Life: ttl})
}

// Drop gives back what was admitted for a record that does not stay.
func (r *Records) Drop(ctx context.Context, id string) error { return r.memory.Release(ctx, id) }
