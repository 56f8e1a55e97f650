package queue

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
)

func TestResponseID(t *testing.T) {
	job := jobPrefix + poolCode("p") + "01m7x3vb350ckcmq65wwmswwsz"
	if got := ResponseJob(ResponseID(job)); got != job {
		t.Errorf("got job %s, want %s", got, job)
	}
	for _, id := range []string{"", "resp_", job, "resp_68ab1c0d5d3c8190b4ff0e7d2f6a1b2c", "resp_" + job[len(jobPrefix):] + "x", "resp_" + job[len(jobPrefix)+1:]} {
		if got := ResponseJob(id); got != "" {
			t.Errorf("%q is taken for %s", id, got)
		}
	}
}

func TestErase(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q, err := New(redistest.Start(t).DB(), []Pool{{ID: "p"}}, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	j := &Job{ID: q.NewID("p"), Pool: "p", Org: "acme", User: "alice", Class: Async}
	if err := q.Put(ctx, j, []byte("body")); err != nil {
		t.Fatal(err)
	}
	if err := q.Erase(ctx, "acme", j.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := q.reader.job(ctx, "acme", j.ID); err != nil {
		t.Errorf("a waiting job is forgotten: %v", err)
	}
	if _, err := q.Cancel(ctx, "acme", j.ID); err != nil {
		t.Fatal(err)
	}
	if err := q.Erase(ctx, "other", j.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("another org: %v", err)
	}
	if err := q.Erase(ctx, "acme", j.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := q.reader.job(ctx, "acme", j.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("a forgotten job: %v", err)
	}
	if page, err := q.List(ctx, "acme", Filter{User: "alice"}, "", 10); err != nil || len(page.Jobs) != 0 {
		t.Errorf("still listed: %+v, %v", page, err)
	}
}
