package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/spool"
)

// flushMost is the approximate size of one pipeline of output, so that a refusal by Redis
// does not cause everything to be sent again.
const flushMost = 1 << 20

// piece returns how many of the first entries to send together.
func piece(entries []entry) int {
	size := int64(0)
	for i, e := range entries {
		size += e.size()
		if size >= flushMost {
			return i + 1
		}
	}
	return len(entries)
}

// grow reserves Redis memory for n more bytes. It returns an error if there is no room for
// them anywhere. While Redis is unreachable they count as admitted, because nothing can be
// written then anyway.
func (o *Output) grow(n int64) error {
	o.mu.Lock()
	need := o.size + n
	admitted := o.admitted
	spilled := o.spilled > 0
	gone := o.isGone()
	o.mu.Unlock()
	switch {
	case need > o.q.opts.MaxOutput:
		return ErrOutputFull
	case gone:
		return errNotKept
	case spilled:
		return nil
	case need <= admitted:
		o.count()
		return nil
	}
	err := o.admit(min(max(2*admitted, need), o.q.opts.MaxOutput))
	if !capacity.IsFull(err) || o.mayHave(need) || o.q.opts.Blobs != nil {
		return nil
	}
	return errNotKept
}

// Redis frees memory a moment after data is counted as removed. Retrying avoids losing an
// answer that is paid for to data that is already gone.
const (
	roomTries = 5
	roomRest  = 300 * time.Millisecond
)

// mayHave reports whether the answer may have n bytes in Redis. If the memory of all orgs
// is full, and not the org's own share, it retries for a moment.
func (o *Output) mayHave(n int64) bool {
	n = min(n, o.q.opts.MaxOutput)
	for try := 1; ; try++ {
		err := o.admit(n)
		if !capacity.IsFull(err) {
			return true
		}
		var full *capacity.FullError
		if try == roomTries || !errors.As(err, &full) || full.Org || full.Never || o.q.opts.Blobs != nil {
			return false
		}
		time.Sleep(roomRest)
	}
}

// countEvery is how many bytes may be in Redis before they are counted as written and no
// longer as reserved. Until then they count twice, because Redis's own figure includes
// them.
const countEvery = 64 << 10

// count reports the bytes that are in Redis by now, once there are enough of them.
func (o *Output) count() {
	o.mu.Lock()
	uncounted := o.flushed - o.counted
	admitted := o.admitted
	o.mu.Unlock()
	if uncounted >= max(countEvery, admitted/8) {
		_ = o.admit(admitted) // an unchanged size is never refused
	}
}

// restPatience is how long bytes that Redis has no room for wait for memory in this
// process.
const restPatience = 5 * time.Second

// spill buffers bytes that are not admitted into Redis until the end; once it has, all
// later bytes follow. It reports whether it did. The error is errNotKept if there is no
// room.
func (o *Output) spill(p []byte) (spills bool, err error) {
	o.mu.Lock()
	size := o.size + int64(len(p))
	spills = size > o.admitted && !o.ended
	if spills {
		o.head(http.StatusOK)
	}
	o.mu.Unlock()
	if !spills {
		return false, nil
	}
	_, err = o.rest.Write(p)
	if spool.NoRoom(err) {
		return true, errNotKept
	}
	if err != nil {
		return true, fmt.Errorf("queue: keep output: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size = size
	o.spilled += int64(len(p))
	return true, nil
}

// admit reserves n bytes of Redis memory for the whole answer and records the result.
func (o *Output) admit(n int64) error {
	ctx, cancel := context.WithTimeout(o.ctx, reserveTime)
	defer cancel()
	o.mu.Lock()
	flushed := o.flushed
	o.mu.Unlock()
	bytes := capacity.Bytes{Reserved: n - flushed, Written: o.job.bytes() + flushed}
	err := o.q.memory.Reserve(ctx, o.job.Org, o.job.ID, bytes, o.q.settings.pools()[o.job.Pool].life())
	if capacity.IsFull(err) {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.admitted = n
	o.counted = flushed
	return err
}

// rested is after for callers that do not hold o.mu.
func (o *Output) rested(err error) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.after(err)
}

// after returns the pause before a failed send is repeated. A full Redis and a store that
// accepts nothing get longer pauses, and fullPatience starts to run. o.mu must be held.
func (o *Output) after(err error) time.Duration {
	if !capacity.IsFull(err) && !errors.Is(err, errNoStore) && !spool.NoRoom(err) {
		return flushRetry
	}
	if o.full.IsZero() {
		o.full = time.Now()
	}
	o.pause = min(2*o.pause, fullRest)
	return o.pause
}

// isGone reports whether the output has found no room for too long. o.mu must be held.
func (o *Output) isGone() bool {
	return o.lost || !o.full.IsZero() && time.Since(o.full) >= fullPatience
}

func (o *Output) gone() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.isGone()
}

// drop deletes an answer that cannot be kept whole, and returns errNotKept.
func (o *Output) drop(ctx context.Context) error {
	o.mu.Lock()
	o.lost, o.pending = true, nil
	o.mu.Unlock()
	o.rest.Close()
	if err := o.q.rdb.Unlink(ctx, outKey(o.job.ID, o.attempt)).Err(); err != nil {
		return errors.Join(errNotKept, err)
	}
	return errNotKept
}

// kept returns how many bytes of an ended output are in Redis.
func (o *Output) kept() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.lost:
		return 0
	case o.moving != nil:
		return refBytes
	}
	return o.size + headerBytes(o.header)
}
