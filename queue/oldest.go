package queue

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// lanesLooked bounds what Oldest asks of Redis: some 5 ms of its time.
const lanesLooked = 1000

// Oldest tells when the jobs of each class that wait longest were put, by their
// proxies' clocks; zero when none waits. It looks at 1,000 flows of each class at
// most, so in a pool with more the oldest job may be older.
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

// idTime is when a job was put, by its proxy's clock.
func idTime(id string) (time.Time, bool) {
	code := idCode(id)
	if code == "" {
		return time.Time{}, false
	}
	return wire.CallTime(id[len(jobPrefix)+len(code):])
}
