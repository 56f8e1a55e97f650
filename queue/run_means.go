package queue

import (
	"context"
	"sync"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/pricing"
)

// runMeans are means over the last calls of a pool in this process: how long a call takes, and
// how much of what it holds is charged. Redis has the last that any process has written, for snapshots.
type runMeans struct {
	mu          sync.Mutex
	took, share float64 // us, per mille
	changed     bool    // since they were written
}

const (
	runMeanOf     = 8           // a call counts for one part in this many
	runMeansEvery = time.Second // between writes
)

// Learn takes a call that has ended into account when it foresees when others may run.
func (q *Queue) Learn(call *guard.Call) {
	p := q.settings.pools()[call.Plan.Target.Pool]
	if p == nil || call.Result.Outcome != guard.Completed {
		return
	}
	p.means.mu.Lock()
	defer p.means.mu.Unlock()
	p.means.add(call.Result.Took, call.Hold.Max.Cost, call.Result.Cost)
}

// writeMeans writes the means that have changed to the hashes of their pools.
func (q *Queue) writeMeans(ctx context.Context) {
	for _, p := range q.settings.pools() {
		if took, share, changed := p.means.take(); changed {
			q.rdb.HSet(ctx, p.keys[6], "took", took, "share", share) // after an error the next call's are written
		}
	}
}

// take returns the means, and whether they have changed since it was last called.
func (m *runMeans) take() (took, share int64, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed = m.changed
	m.changed = false
	return int64(m.took), int64(m.share), changed
}

// add adds a call; mu must be held.
func (m *runMeans) add(took time.Duration, held, cost pricing.Nano) {
	m.changed = true
	us, share := float64(took.Microseconds()), 1000.0
	if held > 0 {
		share = min(1000*float64(cost)/float64(held), 1000)
	}
	if m.took == 0 {
		m.took, m.share = us, share
	}
	m.took += (us - m.took) / runMeanOf
	m.share += (share - m.share) / runMeanOf
}
