package guard

import (
	"sync"
	"sync/atomic"
	"time"
)

// A caller that does not read holds up our reading of the provider, which goes on
// generating into the buffers between. When such a caller leaves, what is on its way
// is read and charged before the provider is cancelled: it is on the provider's bill.

const (
	// lateness is how long passing events on may take without being held up.
	lateness = 5 * time.Millisecond
	// behindAfter is how long a stream must have been held up to be behind.
	behindAfter = 100 * time.Millisecond
	// catchUpStep is how often the reading of what is on its way is looked at, and
	// catchUpMost how long it may take.
	catchUpStep = 250 * time.Millisecond
	catchUpMost = 5 * time.Second
)

// behind is how far a stream's reading is behind its provider.
type behind struct {
	start    time.Time
	since    atomic.Int64 // when events were last taken, in nanoseconds since start; 0 while reading
	blocked  atomic.Int64 // nanoseconds that passing events on took too long
	catching atomic.Bool  // the caller is gone
	cut      atomic.Bool  // the rest was given up
	read     atomic.Int64 // tokens of output that have come, while catching up
	once     sync.Once
}

// taken and passed enclose the passing on of events.
func (b *behind) taken() { b.since.Store(int64(time.Since(b.start)) + 1) }

func (b *behind) passed() {
	if took := time.Since(b.start) - time.Duration(b.since.Swap(0)); took > lateness {
		b.blocked.Add(int64(took))
	}
}

// heldUp is how long the stream was held up.
func (b *behind) heldUp() time.Duration {
	held := time.Duration(b.blocked.Load())
	if since := b.since.Load(); since > 0 {
		held += time.Since(b.start) - time.Duration(since)
	}
	return held
}

// generated is how many tokens no provider exceeds in a time.
func (c *Call) generated(d time.Duration) int64 {
	return int64(d.Seconds()*fastest+1) * c.Plan.Request.Choices()
}

// depart cancels the provider of a caller who is gone, at once or, when the stream
// is behind, as soon as it comes no faster than it is generated.
func (e *upstreamCall) depart() {
	if e.behind.heldUp() < behindAfter {
		e.cancel(ErrGone)
		return
	}
	e.behind.once.Do(func() {
		e.behind.catching.Store(true)
		e.catchUp(time.Now().Add(catchUpMost), 0, false)
	})
}

// catchUp looks in a moment whether what comes is still what was on its way: more than
// can have been generated since so much had come. Two looks in a row that find less
// end it, as what is on its way may take a moment.
func (e *upstreamCall) catchUp(until time.Time, before int64, waned bool) {
	time.AfterFunc(catchUpStep, func() {
		b := &e.behind
		came := b.read.Load()
		passing := b.since.Load() > 0 // the caller's connection may have yet to fail
		less := !passing && came-before <= e.call.generated(catchUpStep)
		switch {
		case e.upstream.Err() != nil:
		case less && waned:
			e.cancel(ErrGone)
		case time.Now().After(until):
			b.cut.Store(true)
			e.cancel(ErrGone)
		default:
			e.catchUp(until, came, less)
		}
	})
}

// sent is how many tokens a provider that was cancelled for a caller who is gone has
// sent: what came, and when that was not all, what it can have generated while the
// caller did not read. That part is within the hold.
func (r *relay) sent() int64 {
	came := r.visible()
	if !r.errand.behind.cut.Load() {
		return came
	}
	return max(came, min(came+r.call.generated(r.errand.behind.heldUp()), r.call.bill.held))
}
