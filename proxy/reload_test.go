package proxy

import (
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// TestJobOfAnotherPool: jobs wait in the pool that their model had when they were queued. If a
// reload has moved the model to another pool, their calls take quota there, and what their claims
// booked is returned.
func TestJobOfAnotherPool(t *testing.T) {
	r := newRig(t, queue.Pool{RPM: 1}, nil)
	if err := r.queue.Configure([]queue.Pool{{ID: "main", RPM: 1}, {ID: "old", RPM: 6000}}, queue.Options{}); err != nil {
		t.Fatal(err)
	}
	const jobs = 5
	for range jobs {
		job := &queue.Job{
			ID: r.queue.NewID("old"), Pool: "old", CallID: wire.NewCallID(), Org: "acme", User: "alice", Key: "k1",
			Class: queue.Async, Endpoint: wire.ChatCompletions, Model: "gpt-4o-mini", Tokens: 20,
		}
		if err := r.queue.Put(t.Context(), job, []byte(prompt("hi", `"max_tokens":5`))); err != nil {
			t.Fatal(err)
		}
	}
	r.worker(nil)
	depth := func(pool string) queue.Depth {
		d, err := r.queue.Depth(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	r.until("one ran, and the others rest", func() bool {
		d := depth("old")
		return d.Jobs == jobs-1 && d.Waiting[queue.Async] == jobs-1 && d.Parked > 0
	})
	if n, main, old := len(r.fake.Log()), depth("main").Rates[0].Used, depth("old").Rates[0].Used; n != 1 || main != 1 || old != 0 {
		t.Errorf("%d requests; booked are %d of the new pool and %d of the old, want one of the new", n, main, old)
	}
}
