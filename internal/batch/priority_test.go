package batch

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

// TestPriorityOfLines: the lines of a batch have its priority and deadline; those with the service
// tier flex are low.
func TestPriorityOfLines(t *testing.T) {
	r := newRig(t)
	r.org.Priorities = guard.Priorities{Most: quota.High}
	f := r.upload(`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}}
{"custom_id":"b","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o","max_tokens":5,"service_tier":"flex","messages":[{"role":"user","content":"hi"}]}}
`)
	high, by := quota.High, time.Now().Add(time.Hour).Truncate(time.Second)
	for _, c := range []struct {
		chosen *quota.Priority
		by     time.Time
		want   []quota.Priority
	}{
		{nil, time.Time{}, []quota.Priority{quota.Normal, quota.Low}},
		{&high, by, []quota.Priority{quota.High, quota.High}},
	} {
		b, err := r.store.Create(t.Context(), Request{
			Owner: Owner{Org: "acme", User: "alice", Key: "k1"}, File: f, Endpoint: wire.ChatCompletions,
			Priority: c.chosen, StartBy: c.by,
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := r.runner(r.options())
		r.await(b.ID, "in progress", func(b *Batch) bool { return b.next.line == 2 })
		stop()
		for line, want := range c.want {
			probe := &turn{r: NewRunner(r.store, r.options()), b: b}
			probe.b.pool = "main"
			j, err := r.queue.Job(t.Context(), "acme", probe.jobID(line+1))
			if err != nil {
				t.Fatal(err)
			}
			if j.Priority != want || j.ByDeadline == c.by.IsZero() {
				t.Errorf("line %d: got priority %s, by deadline %t; want %s, %t", line, j.Priority, j.ByDeadline, want, !c.by.IsZero())
			}
			if off := j.Deadline.Sub(c.by).Abs(); j.ByDeadline && off > time.Second || j.Class != queue.Batch {
				t.Errorf("line %d: got deadline %s and class %s, want %s and batch", line, j.Deadline, j.Class, c.by)
			}
		}
	}
}
