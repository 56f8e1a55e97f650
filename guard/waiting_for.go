package guard

import (
	"sync"
	"sync/atomic"
	"time"
)

// A caller that does not read blocks our reading from the provider, which continues to
// generate into the buffers in between. When such a caller leaves, the data in transit is
// read and charged before the provider is cancelled, because it is on the provider's bill.

const (
	// lateness is how long forwarding events may take without counting as blocked.
	lateness = 5 * time.Millisecond
	// behindAfter is how long a stream must have been blocked to count as behind.
	behindAfter = 100 * time.Millisecond
	// catchUpStep is the interval at which the reading of data in transit is checked,
	// and catchUpMost how long it may take.
	catchUpStep = 250 * time.Millisecond
	catchUpMost = 5 * time.Second
)

// behind tracks how far a stream's reading is behind its provider.
type behind struct {
	start    time.Time
	since    atomic.Int64 // when events were last taken, in nanoseconds since start; 0 while reading
	blocked  atomic.Int64 // nanoseconds that forwarding events took too long
	catching atomic.Bool  // the caller has left
	cut      atomic.Bool  // the rest was given up
	read     atomic.Int64 // tokens of output that have arrived, while catching up
	once     sync.Once
}

// taken and passed enclose the forwarding of events.
func (b *behind) taken() { b.since.Store(int64(time.Since(b.start)) + 1) }

func (b *behind) passed() {
	if took := time.Since(b.start) - time.Duration(b.since.Swap(0)); took > lateness {
		b.blocked.Add(int64(took))
	}
}

// heldUp returns how long the stream was blocked.
func (b *behind) heldUp() time.Duration {
	held := time.Duration(b.blocked.Load())
	if since := b.since.Load(); since > 0 {
		held += time.Since(b.start) - time.Duration(since)
	}
	return held
}

// generated returns an upper bound of the tokens any provider generates in a time.
func (c *Call) generated(d time.Duration) int64 {
	return int64(d.Seconds()*fastest+1) * c.Plan.Request.Choices()
}

// depart cancels the provider of a caller who has left: immediately, or, if the stream is
// behind, once it arrives no faster than it is generated.
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

// catchUp checks after a moment whether data in transit is still arriving: more than can
// have been generated since the previous check. Two consecutive checks that find less end
// it, because data in transit may be delayed.
func (e *upstreamCall) catchUp(until time.Time, before int64, waned bool) {
	time.AfterFunc(catchUpStep, func() {
		b := &e.behind
		came := b.read.Load()
		passing := b.since.Load() > 0 // the caller's connection may not have failed yet
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

// sent returns how many tokens the provider, cancelled because the caller left, has sent:
// what arrived and, if that was not all, what it may have generated while the caller did
// not read. The latter part is limited to the hold.
func (r *relay) sent() int64 {
	came := r.visible()
	if !r.errand.behind.cut.Load() {
		return came
	}
	return max(came, min(came+r.call.generated(r.errand.behind.heldUp()), r.call.bill.held))
}
