package queue

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// lanesLooked bounds what Oldest costs Redis, to about 5 ms.
const lanesLooked = 1000

// Oldest returns when the longest-waiting job of each class was put, by the clock of its
// proxy; zero if none waits. It examines at most 1,000 flows of each class, so a pool with
// more may have an older job.
func (q *Queue) Oldest(ctx context.Context, poolID string) (put [4]time.Time, err error) {
	p, err := q.settings.pool(poolID)
	if err != nil {
		return put, err
	}
	reply, err := q.scripts.eval(ctx, "oldest", oldestScript, p.keys, lanesLooked)
	if err != nil {
		return put, err
	}
	w, err := words("oldest", reply, 4)
	if err != nil {
		return put, err
	}
	for class := Interactive; class <= Batch; class++ {
		put[class], _ = idTime(w[class-1])
	}
	return put, nil
}

// idTime returns when a job was put, by the clock of its proxy.
func idTime(id string) (time.Time, bool) {
	code := idCode(id)
	if code == "" {
		return time.Time{}, false
	}
	return wire.CallTime(id[len(jobPrefix)+len(code):])
}
