package queue

import (
	"context"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
)

// A running queue accepts new pools, other bounds and other numbers of handlers. A running
// job continues, and a job in a removed pool still runs.
func TestConfigure(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"}, Pool{ID: "old"})
	began, release := make(chan string, 10), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	w := NewWorker(e.Queue, func(ctx context.Context, c *Claim) Verdict {
		if err := c.Start(ctx); err != nil {
			return Verdict{Kind: Requeue}
		}
		began <- c.Job.ID
		if c.Job.User == "slow" {
			select {
			case <-release:
			case <-ctx.Done():
				return Verdict{Kind: Requeue}
			}
		}
		return Verdict{Kind: Done}
	}, WorkerOptions{Concurrency: map[string]int{"p": 1}})
	done := make(chan error, 2)
	go func() { done <- e.Run(ctx) }()
	go func() { done <- w.Run(ctx) }()
	defer func() {
		cancel()
		for range 2 {
			if err := redistest.Came(t, done); err != nil {
				t.Error(err)
			}
		}
	}()

	slow := e.put(e.job("p", "acme", "slow", Async, 1))
	if id := redistest.Came(t, began); id != slow.ID {
		t.Fatalf("%s began", id)
	}
	if err := e.Configure([]Pool{{ID: "p", MaxJobs: 2}, {ID: "new"}}, Options{MaxAttempts: 1, OrgShare: 100}); err != nil {
		t.Fatal(err)
	}
	w.SetConcurrency(map[string]int{"p": 2})
	for _, pool := range []string{"p", "new", "old"} { // p now has a handler in addition to the busy one
		j := e.put(e.job(pool, "acme", "quick", Async, 1))
		redistest.Eventually(t, "the job in "+pool+" succeeded", func() bool { return e.state(j) == Succeeded })
	}
	for range 3 {
		redistest.Came(t, began)
	}
	if s := e.state(slow); s != Running {
		t.Errorf("the job of the crew that left is %s", s)
	}
	e.put(e.job("p", "acme", "slow", Async, 1))
	if err := e.Put(t.Context(), e.job("p", "acme", "slow", Async, 1), nil); err == nil || !strings.Contains(err.Error(), "2") {
		t.Errorf("a third job in a pool of two: %v", err)
	}
	close(release)
	redistest.Eventually(t, "the slow job succeeded", func() bool { return e.state(slow) == Succeeded })
}

func TestConfigureRefuses(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	before := e.settings.now()
	for _, err := range []error{
		e.Configure([]Pool{{ID: "a b"}}, Options{}),
		e.Configure([]Pool{{ID: "p"}}, Options{OrgShare: 101}),
		e.Configure([]Pool{{ID: "p"}}, Options{Weights: map[string]int{"acme": 0}}),
	} {
		if err == nil {
			t.Error("taken")
		}
	}
	if e.settings.now() != before {
		t.Error("something has changed")
	}
	if err := e.Configure([]Pool{{ID: "p"}, {ID: "q"}}, Options{}); err != nil || e.settings.pools()["p"] != before.pools["p"] {
		t.Errorf("a pool that is as it was is another one, %v", err)
	}
}
