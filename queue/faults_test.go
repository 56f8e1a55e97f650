package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// faulty makes one command or pipeline in twenty fail, half of them before Redis has seen
// it, half after Redis has executed it.
type faulty struct{}

func (faulty) DialHook(next redis.DialHook) redis.DialHook { return next }

func (faulty) fail(call func() error, spoil func(error)) error {
	switch rand.IntN(40) {
	case 0:
		spoil(io.EOF)
		return io.EOF
	case 1:
		_ = call()
		spoil(io.EOF)
		return io.EOF
	}
	return call()
}

func (f faulty) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return f.fail(func() error { return next(ctx, cmd) }, cmd.SetErr)
	}
}

func (f faulty) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return f.fail(func() error { return next(ctx, cmds) }, func(err error) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		})
	}
}

// Lost commands and lost replies change nothing: every job ends once, with its whole
// output, and nothing is left behind.
func TestDrainWithLostCommandsAndReplies(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	clean := envOn(t, srv, Options{}, Pool{ID: "p", RPM: 100_000, Concurrency: 20})
	e := envOn(t, srv, Options{MaxAttempts: 20}, Pool{ID: "p", RPM: 100_000, Concurrency: 20})
	rdb := srv.Client()
	rdb.AddHook(faulty{})
	e.Queue.rdb = redistest.DB(rdb)
	e.run(func(ctx context.Context, c *Claim) Verdict {
		if c.Recovered != nil {
			return *c.Recovered
		}
		if err := c.Start(ctx); err != nil {
			return Verdict{Kind: Requeue, Unused: true}
		}
		for i := range 5 {
			fmt.Fprintf(c.Output(), "%d", i)
		}
		return Verdict{Kind: Done}
	}, WorkerOptions{})
	var jobs []*Job
	for i := range 100 {
		j := e.job("p", fmt.Sprintf("o%d", i%4), "u", Async, 1)
		redistest.Eventually(t, "the job is put", func() bool { return e.Put(t.Context(), j, []byte("{}")) == nil })
		jobs = append(jobs, j)
	}
	for _, j := range jobs {
		redistest.Eventually(t, "job ended", func() bool { return clean.state(j).Terminal() })
		got, err := clean.Job(t.Context(), j.Org, j.ID)
		if err != nil || got.State != Succeeded {
			t.Fatalf("job is %+v, %v", got, err)
		}
		w := clean.Watch(t.Context(), j)
		for data := ""; ; {
			ev, err := w.Next(t.Context())
			if errors.Is(err, io.EOF) {
				if data != "01234" {
					t.Errorf("output %q", data)
				}
				break
			}
			data += string(ev.Data)
		}
		w.Close()
	}
	redistest.Eventually(t, "nothing left", func() bool {
		d, err := clean.Depth(t.Context(), "p")
		return err == nil && d.Jobs == 0 && d.Bytes == 0 && d.Claims == 0 && d.Waiting == [4]int64{} && d.WaitingTokens == [4]int64{}
	})
}
