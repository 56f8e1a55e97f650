package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/fakeprovider"
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
	jobs, err := queue.New(redistest.DB(rdb), []queue.Pool{{ID: pool}}, queue.Options{})
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

// TestPausedPool: while an operator pauses a pool, jobs wait and live calls do not. The command line and asynq's tools
// pause and resume the same.
func TestPausedPool(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, simple("[{name: w, subject: org, amount: $100, window: 1h}]"))
	p := s.proxy()
	s.worker()
	rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr})
	defer rdb.Close()
	look, key, body := asynq.NewInspectorFromRedisClient(rdb), s.keys["alice"], chat("gpt-4o-mini", "hello", `"max_tokens":5`)
	url := func() string { return p.URL }
	awaitJob(t, p.URL, key, submit(t, url, key, body).ID, time.Minute)

	s.run("queue", "pause", "openai")
	if info, err := look.GetQueueInfo("openai"); err != nil || !info.Paused {
		t.Fatalf("asynq shows %+v (%v), want a paused queue", info, err)
	}
	waits := submit(t, url, key, body)
	if a := post(p.URL+"/chat/completions", key, body); a.status != http.StatusOK {
		t.Errorf("a live call got %d: %s", a.status, a.body)
	}
	time.Sleep(2 * time.Second) // in which a job would start
	if why := s.run("why", waits.ID); !strings.Contains(why, "Pool openai is paused.\n") || !strings.Contains(why, " queue resume openai ") {
		t.Errorf("why says %s", why)
	}
	s.run("queue", "resume", "openai")
	awaitJob(t, p.URL, key, waits.ID, time.Minute)

	if err := look.PauseQueue("openai"); err != nil {
		t.Fatal(err)
	}
	waits = submit(t, url, key, body)
	time.Sleep(2 * time.Second)
	if out := s.run("queue"); !strings.Contains(out, "paused") {
		t.Errorf("llmguard queue says %s", out)
	}
	if err := look.UnpauseQueue("openai"); err != nil {
		t.Fatal(err)
	}
	awaitJob(t, p.URL, key, waits.ID, time.Minute)
}
