package proxy

import (
	"sync"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/queue"
)

// waitingFlows counts the callers that wait here for their jobs to start. No call may overtake the
// waiting callers of its own flow. If some have the same key and model, a new call would wait for
// the same thing, so it need not first request money and quota that others could use meanwhile. It
// is safe for concurrent use.
type waitingFlows struct {
	mu    sync.Mutex
	count map[waitingLane]int
}

type waitingLane struct {
	queue.Flow
	pool, key, model string
}

func newWaitingFlows() *waitingFlows { return &waitingFlows{count: map[waitingLane]int{}} }

func (w *waitingFlows) add(f waitingLane, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count[f] += n
	if w.count[f] == 0 {
		delete(w.count, f)
	}
}

// behind reports whether a call has to wait behind others of its flow.
func (w *waitingFlows) behind(p *guard.Plan) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count[waitingLane{
		queue.Flow{Org: p.Caller.Org.ID, User: p.Caller.User},
		p.Target.Pool, p.Caller.Key,
		p.Request.Model,
	}] > 0
}

// await counts a caller that waits, or that no longer does because its job runs.
func (v *waitingCaller) await(waits bool) {
	if waits == v.counted {
		return
	}
	v.counted = waits
	n := -1
	if waits {
		n = 1
	}
	j := v.job
	v.calls.flows.add(waitingLane{queue.Flow{Org: j.Org, User: j.User}, j.Pool, j.Key, j.Model}, n)
}
