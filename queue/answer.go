package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/storage/files"
)

// Answer is a complete answer as it was sent to a caller, byte for byte.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// ErrNoRoom is returned when an answer cannot be stored: its org has used up its storage or
// its share of Redis memory, or Redis is full.
var ErrNoRoom = errors.New("queue: no room for the answer")

// KeepAnswer stores the answer of a call that was not a job, under the call's id, for ttl.
// It counts toward the org's files wherever it is stored. The error is ErrNoRoom or comes
// from Redis. KeepAnswer is idempotent.
func (q *Queue) KeepAnswer(ctx context.Context, org, id string, a Answer, ttl time.Duration) error {
	err := q.contents.keepAnswer(ctx, org, id, a, ttl)
	if capacity.IsFull(err) || errors.Is(err, files.ErrFull) {
		_ = q.rdb.Unlink(ctx, outKey(id, 1)).Err() // if this fails, it expires
		_ = q.records.Keep(ctx, id, ttl)
		q.contents.removeBlobs(ctx, org, outBlob(id, 1))
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	return err
}

func (cs *contents) keepAnswer(ctx context.Context, org, id string, a Answer, ttl time.Duration) error {
	all := recordBytes + headerBytes(a.Header) + int64(len(a.Body))
	if err := cs.count(ctx, org, outBlob(id, 1), all, ttl); err != nil {
		return err
	}
	body, inRedis := bytesEntry(a.Body), all
	if cs.outside(int64(len(a.Body))) {
		if r, err := cs.putBlob(ctx, org, outBlob(id, 1), a.Body, ttl); err == nil {
			body, inRedis = blobEntry(r.text(cs.settings.seal(), org, outKey(id, 1))), all-int64(len(a.Body))+refBytes
		}
	}
	if err := cs.memory.Reserve(ctx, org, id, capacity.Bytes{Written: inRedis}, ttl); err != nil {
		return err
	}
	err := cs.appendOutput(ctx, attemptRef{org, id, 1}, ttl, []entry{
		{1, headEntry(a.Status, a.Header)}, {2, body}, {3, endEntry(true, Verdict{})},
	})
	if err != nil {
		return err
	}
	_ = cs.memory.Settle(ctx, capacity.Settled{ID: id, Written: inRedis, Life: ttl}) // else it stays reserved
	return nil
}

// Answer returns an answer stored for the org, or ErrNotFound once it has expired.
func (q *Queue) Answer(ctx context.Context, org, id string) (Answer, error) {
	a, whole, err := q.contents.answer(ctx, org, id, 1)
	if err == nil && !whole {
		err = ErrNotFound
	}
	return a, err
}

// Result returns the answer recorded by the latest attempt of a job. It returns ErrNotFound
// if there is none, or if a successful answer is incomplete.
func (q *Queue) Result(ctx context.Context, j *Job) (Answer, error) {
	a, whole, err := q.contents.answer(ctx, j.Org, j.ID, j.Attempt)
	if err == nil && !whole && a.Status < http.StatusBadRequest {
		err = ErrNotFound
	}
	return a, err
}

// answer reads a recorded answer and reports whether it is complete.
func (cs *contents) answer(ctx context.Context, org, id string, attempt int) (a Answer, whole bool, err error) {
	messages, err := cs.rdb.XRange(ctx, outKey(id, attempt), "-", "+").Result()
	if err != nil {
		return a, false, fmt.Errorf("queue: read answer: %w", err)
	}
	events, _, err := cs.outputEvents(ctx, attemptRef{org, id, attempt}, messages, reading{})
	if err != nil {
		return a, false, err
	}
	for _, e := range events {
		switch e.Kind {
		case Head:
			a.Status, a.Header = e.Status, e.Header
		case Bytes:
			a.Body = append(a.Body, e.Data...)
			if e.room > 0 {
				cs.opts.Spool.Memory.Give(org, e.room)
			}
		case End:
			whole = e.OK
		}
	}
	return a, whole, nil
}
