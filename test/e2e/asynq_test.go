package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/queue"
)

// taskStates are the states of which asynq and the queue have to count the same.
var taskStates = [4]string{"waiting", "running", "resting", "dead"}

// taskWatch compares asynq's Inspector with the jobs of a pool all the time.
type taskWatch struct {
	t    *testing.T
	look *asynq.Inspector
	jobs *queue.Queue
	pool string

	longest [4]time.Duration // for which one had more than the other, by state
}

// watchTasks compares until stop is called, which returns when the pool's counts agree.
func (s *stack) watchTasks(pool string) (stop func()) {
	s.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr})
	jobs, err := queue.New(rdb, []queue.Pool{{ID: pool}}, queue.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = rdb.Close() })
	w := &taskWatch{t: s.t, look: asynq.NewInspectorFromRedisClient(rdb), jobs: jobs, pool: pool}
	ctx, cancel := context.WithCancel(s.t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { w.watch(ctx) })
	return func() {
		cancel()
		redistest.Wait(s.t, watching.Wait)
		redistest.Eventually(s.t, "asynq's Inspector shows the jobs", func() bool {
			differ, ok := w.differ(s.t.Context())
			return ok && differ == [4]int{}
		})
		s.t.Logf("for the longest time, one counted more than the other: %s", w)
	}
}

func (w *taskWatch) String() (text string) {
	for k, state := range taskStates {
		text += fmt.Sprintf("%s %.1f s ", state, w.longest[k].Seconds())
	}
	return text
}

// differ returns how many more jobs of each state Inspector shows.
func (w *taskWatch) differ(ctx context.Context) (d [4]int, ok bool) {
	depth, err := w.jobs.Depth(ctx, w.pool)
	if err != nil {
		return d, false
	}
	info, err := w.look.GetQueueInfo(w.pool)
	if err != nil {
		info = &asynq.QueueInfo{}
	}
	waiting := depth.Waiting[queue.Interactive] + depth.Waiting[queue.Async] + depth.Waiting[queue.Batch]
	return [4]int{
		info.Pending - int(waiting), info.Active - int(depth.Claims),
		info.Retry + info.Scheduled - int(depth.Jobs-depth.Claims-waiting), info.Archived - int(depth.Dead),
	}, true
}

func (w *taskWatch) watch(ctx context.Context) {
	var since [4]time.Time
	var sign [4]bool
	for ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		d, ok := w.differ(ctx)
		if !ok {
			continue // Redis restarts
		}
		for k, n := range d {
			if n == 0 || since[k].IsZero() || sign[k] != (n > 0) {
				since[k], sign[k] = time.Now(), n > 0
			}
			w.longest[k] = max(w.longest[k], time.Since(since[k]))
		}
	}
}
