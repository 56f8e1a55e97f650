package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/storage/files"
)

const (
	flushAfter = 25 * time.Millisecond
	flushBytes = 4 << 10
	flushRetry = 250 * time.Millisecond
)

// ErrOutputFull is returned by Output.Write once an attempt has recorded Options.MaxOutput
// bytes.
var ErrOutputFull = errors.New("queue: the answer exceeds the largest recorded output")

// Output records the answer of one attempt, so that watchers receive it as it grows and
// other readers can fetch it later. It is an http.ResponseWriter and Flusher. Admitted
// bytes go to Redis 25 ms after they were written or once there are 4 KB; while Redis is
// unavailable they are kept and sent again. Bytes that are not admitted wait for the end,
// when files.store takes the whole answer; without a store Write returns an error. It is
// safe for concurrent use, except that only one goroutine may call Write at a time and that
// Header must not be changed after WriteHeader.
type Output struct {
	q       *Queue
	ctx     context.Context // of the attempt, without its cancellation
	job     *Job
	attempt int
	ttl     time.Duration
	header  http.Header

	mu       sync.Mutex
	wrote    bool // head recorded
	ended    bool
	size     int64
	admitted int64 // bytes that may be in Redis
	flushed  int64 // bytes in Redis
	counted  int64 // flushed bytes that memory counts as written
	next     int64
	buf      []byte
	rest     spool.Buffer // bytes not admitted; files.store takes them at the end
	spilled  int64        // bytes in rest
	pending  []entry      // not acknowledged by Redis
	last     []any        // the end of an answer that is to move out of Redis; only End uses it
	lost     bool         // there is no room for the answer anywhere
	pause    time.Duration
	full     time.Time // since when Redis refuses the pending entries; zero if it does not
	moving   *outputMove
	timer    *time.Timer
	sending  sync.Mutex // held during an append, to keep entries in order
}

func newOutput(ctx context.Context, q *Queue, j *Job, attempt int) *Output {
	o := &Output{
		q: q, ctx: context.WithoutCancel(ctx), job: j, attempt: attempt,
		ttl: q.settings.pools()[j.Pool].ResultTTL, header: make(http.Header), next: 1, admitted: firstAnswer,
		pause: flushRetry,
	}
	o.rest = q.opts.Spool.Buffer(o.ctx, j.Org, restPatience)
	o.timer = time.AfterFunc(time.Hour, o.flushLater)
	o.timer.Stop()
	return o
}

// Header returns the header that is recorded with the status.
func (o *Output) Header() http.Header { return o.header }

// WriteHeader records the status and header. Only the first final status counts.
func (o *Output) WriteHeader(status int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.head(status)
}

func (o *Output) head(status int) {
	if o.wrote || o.ended || status < 200 {
		return
	}
	o.wrote = true
	o.add(headEntry(status, o.header))
	o.timer.Reset(0)
}

// Write records bytes of the answer. The error is ErrOutputFull, a lack of room, or a write
// after the end. Only one goroutine may call it at a time.
func (o *Output) Write(p []byte) (int, error) {
	if err := o.grow(int64(len(p))); err != nil {
		return 0, err
	}
	if spills, err := o.spill(p); spills {
		return len(p), err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return 0, errors.New("queue: write to an ended output")
	}
	o.head(http.StatusOK)
	o.size += int64(len(p))
	if len(o.buf) == 0 {
		o.timer.Reset(flushAfter)
	}
	o.buf = append(o.buf, p...)
	if len(o.buf) >= flushBytes {
		o.timer.Reset(0)
	}
	return len(p), nil
}

// Flush does nothing: every write is sent within 25 ms.
func (o *Output) Flush() {}

// Started reports whether anything was recorded.
func (o *Output) Started() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wrote
}

// End records the end of the answer: complete, with the outcome v that the job will have,
// or broken off. It returns once Redis has everything; it retries while ctx lasts, or for a
// minute if Redis is full. Only the first End counts. The worker calls it; a runner with
// more to do than its watchers need may call it earlier.
func (o *Output) End(ctx context.Context, ok bool, v Verdict) error {
	o.mu.Lock()
	if !o.ended {
		o.seal()
		o.ended = true
		if ok && (o.q.contents.outside(o.size) || o.spilled > 0) {
			o.last = endEntry(ok, v)
		} else {
			o.add(endEntry(ok, v))
		}
	}
	o.timer.Stop()
	o.mu.Unlock()
	defer o.rest.Close()
	for !o.gone() {
		err := o.flush(ctx)
		if err == nil {
			o.count()
			err = o.leave(ctx)
		}
		if err == nil || errors.Is(err, errNotKept) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case <-time.After(o.rested(err)):
		}
	}
	return o.drop(ctx)
}

// leave moves a large answer, with its end, out of Redis. An answer that cannot be written
// to a blob stays.
func (o *Output) leave(ctx context.Context) error {
	if o.last == nil {
		return nil
	}
	if o.moving == nil {
		var err error
		o.moving, err = o.q.contents.depart(ctx, o, o.next, o.last)
		switch {
		case o.spilled > 0 && (errors.Is(err, files.ErrFull) || errors.Is(err, errPartLost)):
			return o.drop(ctx)
		case err != nil && o.spilled > 0: // Redis does not have all of it
			return err
		case err != nil:
			o.mu.Lock()
			o.add(o.last)
			o.mu.Unlock()
			o.last = nil
			return o.flush(ctx)
		}
	}
	if err := o.q.contents.moveOut(ctx, o, o.moving); err != nil {
		return err
	}
	o.last = nil
	return nil
}

func (o *Output) add(values []any) {
	o.pending = append(o.pending, entry{n: o.next, values: values})
	o.next++
}

func (o *Output) seal() {
	if len(o.buf) > 0 {
		o.add(bytesEntry(o.buf))
		o.buf = nil
	}
}

// flush sends the pending entries.
func (o *Output) flush(ctx context.Context) error {
	o.sending.Lock()
	defer o.sending.Unlock()
	o.mu.Lock()
	o.seal()
	batch, ttl := o.pending, o.ttl
	if !o.ended {
		ttl = max(ttl, runLife)
	}
	o.mu.Unlock()
	of := attemptRef{o.job.Org, o.job.ID, o.attempt}
	for len(batch) > 0 {
		n := piece(batch)
		if err := o.q.contents.appendOutput(ctx, of, ttl, batch[:n]); err != nil {
			return err
		}
		o.mu.Lock()
		for _, e := range batch[:n] {
			o.flushed += e.size()
		}
		o.pending, batch = o.pending[n:], batch[n:]
		o.full, o.pause = time.Time{}, flushRetry
		o.mu.Unlock()
	}
	return nil
}

// flushLater is the timer's function.
func (o *Output) flushLater() {
	ctx, cancel := context.WithTimeout(o.ctx, 5*time.Second)
	defer cancel()
	if err := o.flush(ctx); err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !o.ended {
			o.timer.Reset(o.after(err))
		}
	}
}

// stop stops the timer of an output that will not be ended. Pending entries are lost.
func (o *Output) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.timer.Stop()
	o.rest.Close()
}
