package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	flushAfter = 25 * time.Millisecond
	flushBytes = 4 << 10
	flushRetry = 250 * time.Millisecond
)

// ErrOutputFull is returned by Output.Write once an attempt has recorded
// Options.MaxOutput bytes.
var ErrOutputFull = errors.New("queue: the answer exceeds the largest recorded output")

// Output records the answer of one attempt, so that watchers receive it while
// it grows and others read it later. It is an http.ResponseWriter and Flusher.
// Bytes go to Redis 25 ms after they were written or when there are 4 KB; while
// Redis is away they are kept and sent again. Safe for concurrent use, except
// that Header must not be changed after WriteHeader.
type Output struct {
	q       *Queue
	ctx     context.Context // of the attempt, without its cancellation
	job     *Job
	attempt int
	ttl     time.Duration
	header  http.Header

	mu      sync.Mutex
	wrote   bool // head recorded
	ended   bool
	size    int64
	next    int64
	buf     []byte
	pending []entry // not acknowledged by Redis
	last    []any   // the end of an answer that is to move out of Redis; for End alone
	moving  *departure
	timer   *time.Timer
	sending sync.Mutex // one append at a time, in order
}

func newOutput(ctx context.Context, q *Queue, j *Job, attempt int) *Output {
	o := &Output{
		q: q, ctx: context.WithoutCancel(ctx), job: j, attempt: attempt,
		ttl: q.pools()[j.Pool].ResultTTL, header: make(http.Header), next: 1,
	}
	o.timer = time.AfterFunc(time.Hour, o.flushLater)
	o.timer.Stop()
	return o
}

// Header returns the header to be recorded with the status.
func (o *Output) Header() http.Header { return o.header }

// WriteHeader records status and header; only the first final status counts.
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

// Write records bytes of the answer. The error is ErrOutputFull or that the
// output has ended.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return 0, errors.New("queue: write to an ended output")
	}
	if o.size+int64(len(p)) > o.q.opts.MaxOutput {
		return 0, ErrOutputFull
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

// End records the end of the answer: complete, with the outcome v that the job
// will have, or broken off. It returns when Redis has everything, and keeps
// trying while ctx lasts. Only the first End counts. The worker calls it; a
// runner that has more to do than its watchers need calls it earlier.
func (o *Output) End(ctx context.Context, ok bool, v Verdict) error {
	o.mu.Lock()
	if !o.ended {
		o.seal()
		if o.ended = true; ok && o.q.outside(o.size) {
			o.last = endEntry(ok, v)
		} else {
			o.add(endEntry(ok, v))
		}
	}
	o.timer.Stop()
	o.mu.Unlock()
	for {
		err := o.flush(ctx)
		if err == nil {
			if err = o.leave(ctx); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case <-time.After(flushRetry):
		}
	}
}

// leave moves a large answer that Redis has whole out of it, with its end. One
// that no blob can be made of stays.
func (o *Output) leave(ctx context.Context) error {
	if o.last == nil {
		return nil
	}
	if o.moving == nil {
		var err error
		if o.moving, err = o.q.depart(ctx, o, o.next, o.last); err != nil {
			o.mu.Lock()
			o.add(o.last)
			o.mu.Unlock()
			o.last = nil
			return o.flush(ctx)
		}
	}
	if err := o.q.moveOut(ctx, o, o.moving); err != nil {
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

// flush sends what is pending.
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
	if len(batch) == 0 {
		return nil
	}
	if err := o.q.appendOutput(ctx, o.job.Org, o.job.ID, o.attempt, ttl, batch); err != nil {
		return err
	}
	o.mu.Lock()
	o.pending = o.pending[len(batch):]
	o.mu.Unlock()
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
			o.timer.Reset(flushRetry)
		}
	}
}

// stop ends the timer of an output that will not End; what is pending is lost.
func (o *Output) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.timer.Stop()
}
