package proxy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/queue"
)

// TestPutBackAfterItsPatience: a job that a worker has when its caller's patience ends, and puts
// back without a start, ends instead of keeping its caller for ever.
func TestPutBackAfterItsPatience(t *testing.T) {
	t.Parallel()
	for range 10 {
		if putBackAfterItsPatience(t) {
			return
		}
	}
	t.Error("no worker claimed any of ten jobs before their callers' patience ended")
}

// putBackAfterItsPatience returns false if the patience ended before a worker had the job.
func putBackAfterItsPatience(t *testing.T) bool {
	t.Helper()
	r := newRig(t, single, func(o *Options) { o.KeepAlive = 50 * time.Millisecond })
	claimed := make(chan string, 1)
	r.worker(func(ctx context.Context, c *queue.Claim) queue.Verdict {
		claimed <- c.Job.ID
		for { // until the proxy has asked for the job's end
			_, err := r.rdb.ZScore(ctx, "lg:{main}:due", c.Job.ID).Result()
			if errors.Is(err, redis.Nil) || ctx.Err() != nil {
				return queue.Verdict{Kind: queue.Requeue, Wait: time.Hour, Unused: true}
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	r.busy()
	a := r.chat(prompt("hi", streamed), "Prefer", "wait=2")
	select {
	case id := <-claimed:
		if a.status != 200 || !strings.Contains(a.body, "data: {\"error\":") {
			t.Errorf("got status %d, %q, %v; want an error event", a.status, a.body, a.err)
		}
		job, err := r.queue.Job(t.Context(), "acme", id)
		if err != nil || job.State != queue.Expired {
			t.Errorf("job %+v, %v; want %s", job, err, queue.Expired)
		}
		return true
	default:
		t.Logf("not claimed: status %d, %q", a.status, a.body)
		return false
	}
}
