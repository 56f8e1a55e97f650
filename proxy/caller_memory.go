package proxy

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// callerMemory returns memory to the system while many callers wait. They allocate next to nothing,
// so the garbage collector would seldom run: for minutes the process would keep the garbage and the
// deep stacks of their start, and as much headroom again as there is memory in use. It is safe for
// concurrent use.
type callerMemory struct {
	size  atomic.Int64
	grown chan struct{} // capacity one
}

const (
	crowdStep  = 200              // minimum number of callers, and minimum growth before the next collection
	crowdEvery = 10 * time.Second // otherwise after this time
	crowdShare = 50               // collections take at most one part in 50 of the time
)

func newCrowd() *callerMemory { return &callerMemory{grown: make(chan struct{}, 1)} }

func (c *callerMemory) join() {
	if c.size.Add(1)%crowdStep != 0 {
		return
	}
	select {
	case c.grown <- struct{}{}:
	default:
	}
}

func (c *callerMemory) leave() { c.size.Add(-1) }

// tend collects garbage when the number of callers grows and while it stays high, until ctx is
// done.
func (c *callerMemory) tend(ctx context.Context, collect func()) {
	var done int64 // size at the last collection
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.grown:
			if c.size.Load() < done+max(crowdStep, done/4) {
				continue
			}
		case <-again:
		}
		done, again = c.size.Load(), nil
		if done < crowdStep {
			done = 0
			continue
		}
		began := time.Now()
		collect()
		again = time.After(max(crowdEvery, crowdShare*time.Since(began)))
	}
}

// Run returns memory to the system while hundreds of callers wait, until ctx is done. Calls are
// served without it, too.
func (s *Server) Run(ctx context.Context) error {
	s.calls.crowd.tend(ctx, debug.FreeOSMemory)
	return ctx.Err()
}
