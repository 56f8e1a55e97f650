package tasks

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestAJobWithoutATaskStarts: a job whose task is lost starts all the same. A task that is added while it runs is
// active until it ends, and then becomes what the job needs.
func TestAJobWithoutATaskStarts(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	jobs, look := New(redistest.DB(rdb), redistest.DB(rdb), slog.New(slog.DiscardHandler)), asynq.NewInspectorFromRedisClient(rdb)
	w := jobs.NewWorker(t.Context(), func(string) bool { return false }, nil)
	w.Serve(map[string]int{"p": 2})
	for _, end := range []struct {
		what  string
		err   error
		state func(*asynq.QueueInfo) int
	}{
		{"ended", nil, func(i *asynq.QueueInfo) int { return i.Processed }},
		{"rests", Rests(time.Hour), func(i *asynq.QueueInfo) int { return i.Retry }},
		{"is dead", ErrDead, func(i *asynq.QueueInfo) int { return i.Archived }},
		{"waits", ErrWaits, func(i *asynq.QueueInfo) int { return i.Pending }},
	} {
		started, ended := make(chan bool), make(chan error)
		w.Run("p", "job-"+end.what, func() error {
			started <- true
			return redistest.Came(t, ended)
		})
		redistest.Came(t, started)
		if err := errors.Join(jobs.Register(t.Context(), "p"), jobs.AddLost(t.Context(), "p", 1, 0)); err != nil {
			t.Fatal(err)
		}
		shows := func(what string, state func(*asynq.QueueInfo) int) {
			t.Helper()
			redistest.Eventually(t, "a job that "+end.what+" is "+what, func() bool {
				info, err := look.GetQueueInfo("p")
				return err == nil && state(info) == 1
			})
		}
		shows("active", func(i *asynq.QueueInfo) int { return i.Active })
		ended <- end.err
		shows("counted", end.state)
		if err := look.DeleteQueue("p", true); err != nil {
			t.Fatal(err)
		}
	}
	w.Shutdown()
}
