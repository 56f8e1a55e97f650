package proxy

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// callerMemory gives memory back while many callers wait. They allocate next to nothing,
// so the garbage collector would seldom come: for minutes the process would keep
// what their beginnings left behind, deep stacks among it, and room for as much
// garbage as there is memory in use. It is safe for concurrent use.
type callerMemory struct {
	size  atomic.Int64
	grown chan struct{} // holds one
}

const (
	crowdStep  = 200              // fewer are not worth it; so many more, and it is done again
	crowdEvery = 10 * time.Second // else after this time
	crowdShare = 50               // of the time, one part at most goes into it then
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

// tend collects garbage as the crowd grows and while it stays, until ctx is done.
func (c *callerMemory) tend(ctx context.Context, collect func()) {
	var done int64 // size at the last time
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

// Run gives memory back to the system while hundreds of callers wait, until ctx is
// done. Calls are served without it, too.
func (s *Server) Run(ctx context.Context) error {
	s.calls.crowd.tend(ctx, debug.FreeOSMemory)
	return ctx.Err()
}
