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

// flushMost is about how many bytes of an output one pipeline has: what Redis refuses is
// not sent whole each time.
const flushMost = 1 << 20

// piece is how many of the first entries go together.
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

// grow has n more bytes admitted into Redis. The error is that there is no room for them
// anywhere. While Redis does not say, they are admitted: it takes nothing then.
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

// Redis frees what was removed a moment later than it counts as removed, so that an answer
// that is paid for is not lost to what is gone.
const (
	roomTries = 5
	roomRest  = 300 * time.Millisecond
)

// mayHave reports whether the answer may have so many bytes in Redis. Where those of all orgs
// are too many, and not the org's own, it looks again for a moment.
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

// countEvery is how many bytes are in Redis before they count as written and not as
// reserved. Until then they count twice, because Redis's own figure has them, too.
const countEvery = 64 << 10

// count notes what is in Redis by now, where it is much.
func (o *Output) count() {
	o.mu.Lock()
	uncounted := o.flushed - o.counted
	admitted := o.admitted
	o.mu.Unlock()
	if uncounted >= max(countEvery, admitted/8) {
		_ = o.admit(admitted) // no more than before is never refused
	}
}

// restPatience is how long bytes that Redis has no room for wait for room here.
const restPatience = 5 * time.Second

// spill keeps bytes that are not admitted into Redis until the end; once some are, so are
// all after them. It reports whether it did. The error is errNotKept where there is no room.
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

// admit asks for the answer to have so many bytes in Redis, and says how many it has.
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

// rested is after for who does not hold o.mu.
func (o *Output) rested(err error) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.after(err)
}

// after is the pause before what failed is sent again. A full Redis and a store that takes
// nothing get longer ones, and not for ever. o.mu is held.
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

// isGone reports whether the output has found no room for too long; o.mu is held.
func (o *Output) isGone() bool {
	return o.lost || !o.full.IsZero() && time.Since(o.full) >= fullPatience
}

func (o *Output) gone() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.isGone()
}

// drop forgets an answer that cannot be kept whole, and returns errNotKept.
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

// kept is how many bytes of an ended output are in Redis.
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
