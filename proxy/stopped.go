package proxy

import (
	"context"
	"errors"
	"sync"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/queue"
)

// errStopped ends the wait for an event because spending was stopped.
var errStopped = errors.New("spending is stopped")

// stopWatch knows the callers that wait for their jobs to start, so that a stop of spending can
// answer them. It is safe for concurrent use.
type stopWatch struct {
	mu      sync.Mutex
	waiting map[*waitingCaller]context.CancelCauseFunc
}

// add ends a caller's wait with errStopped when its org is stopped.
func (w *stopWatch) add(v *waitingCaller, end context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[v] = end
}

func (w *stopWatch) remove(v *waitingCaller) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, v)
}

// obey ends the waits of callers whose org is stopped.
func (w *stopWatch) obey(stopped func(org string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for v, end := range w.waiting {
		if stopped(v.job.Org) {
			end(errStopped)
		}
	}
}

// wait begins the wait for the job to start. A shutdown ends it, and so does a stop of spending,
// unless the job runs without a caller.
func (v *waitingCaller) wait(ctx context.Context) {
	waiting, end := v.calls.connections.untilDrained(ctx)
	v.waiting = waiting
	v.stop = func() { end(nil) }
	if v.job.Class != queue.Interactive {
		return
	}
	stops := v.calls.stops
	stops.add(v, end)
	v.stop = func() { stops.remove(v); end(nil) }
	if v.calls.opts.Guard.Stopped(v.job.Org) != nil { // before it was added
		end(errStopped)
	}
}

// refuseStopped answers a caller whose job waits while spending is stopped. A job that has begun is
// finished.
func (v *waitingCaller) refuseStopped(ctx context.Context) error {
	var stopped *guard.StoppedError
	if !errors.As(v.calls.opts.Guard.Stopped(v.job.Org), &stopped) { // resumed in the meantime
		v.stop()
		v.deadline = v.patience
		v.wait(ctx)
		return v.run(ctx)
	}
	began, err := v.expire(ctx)
	if err == nil && began {
		return v.run(ctx)
	}
	if err != nil {
		v.calls.opts.Log.Warn("job of a stopped org not ended, the queue will end it", "job", v.job.ID, "err", err)
	}
	x := v.exchange
	refused := guard.Refusing(stopped, x.caller, nil)
	refused.Model, refused.Endpoint = v.job.Model, string(v.job.Endpoint)
	x.outlasted = &refused
	return v.end(stopped.Public())
}
