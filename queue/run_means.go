package queue

import (
	"context"
	"sync"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/pricing"
)

// runMeans are means over the last calls of a pool in this process: how long a call takes, and
// how much of what it holds is charged. Redis has the last that any process has written, for snapshots.
type runMeans struct {
	mu          sync.Mutex
	took, share float64 // us, per mille
	written     time.Time
}

const (
	runMeanOf     = 8           // a call counts for one part in this many
	runMeansEvery = time.Second // at most one write
)

// Learn takes a call that has ended into account when it foresees when others may run.
func (q *Queue) Learn(ctx context.Context, call *guard.Call) {
	if p := q.settings.pools()[call.Plan.Target.Pool]; p != nil && call.Result.Outcome == guard.Completed {
		p.means.learn(ctx, q.rdb, p.keys[6], call)
	}
}

// learn adds a call that has ended, and writes the means to the hash of a pool now and then.
func (m *runMeans) learn(ctx context.Context, rdb redisconn.DB, key string, call *guard.Call) {
	m.mu.Lock()
	m.add(call.Result.Took, call.Hold.Max.Cost, call.Result.Cost)
	due := time.Since(m.written) >= runMeansEvery
	if due {
		m.written = time.Now()
	}
	us, share := m.took, m.share
	m.mu.Unlock()
	if due {
		go func() { // an error is no harm: the next call writes them
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), runMeansEvery)
			defer cancel()
			rdb.HSet(ctx, key, "took", int64(us), "share", int64(share))
		}()
	}
}

// add adds a call; mu must be held.
func (m *runMeans) add(took time.Duration, held, cost pricing.Nano) {
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
