package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/queue"
)

// TestLeaveStream: a stream that runs from the queue is canceled with its caller; its key is free,
// and no place is reserved.
func TestLeaveStream(t *testing.T) {
	r := newRig(t, single, nil)
	stopped := make(chan error, 1)
	started(r, func(ctx context.Context, c *queue.Claim) queue.Verdict {
		_, _ = io.WriteString(c.Output(), "data: {}\n\n")
		select {
		case <-ctx.Done():
			stopped <- context.Cause(ctx)
		case <-time.After(2 * time.Minute):
			stopped <- nil
		}
		return queue.Verdict{Kind: queue.Cancel}
	})
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	r.busy()
	s := r.open(ctx, prompt("hi", streamed), "Idempotency-Key", "k")
	s.expect("data: {}\n\n")
	hangUp()
	if cause := redistest.Came(t, stopped); !errors.Is(cause, queue.ErrCallerGone) {
		t.Errorf("the run ended with %v, want %v", cause, queue.ErrCallerGone)
	}
	r.records(1)
	if keys := r.redis.Client().Keys(t.Context(), "lg:{acme}:once:*").Val(); len(keys) != 0 {
		t.Errorf("after a failed call: got keys %v, want none", keys)
	}
	if keys := r.redis.Client().Keys(t.Context(), "lg:{acme}:place:*").Val(); len(keys) != 0 {
		t.Errorf("got places %v, want none", keys)
	}
}

// writes is a ResponseWriter that reports each write.
type writes struct {
	http.ResponseWriter
	wrote chan []byte
}

func (w *writes) Write(p []byte) (int, error) {
	w.wrote <- bytes.Clone(p)
	return len(p), nil
}

// Flush implements http.Flusher.
func (w *writes) Flush() {}

// TestShutdownWhileAStreamBegins: a stream whose job has just begun when its proxy shuts down is
// not canceled, and continues to its end.
func TestShutdownWhileAStreamBegins(t *testing.T) {
	r := newRig(t, single, nil)
	running := make(chan string, 1)
	goOn := make(chan struct{})
	started(r, func(_ context.Context, c *queue.Claim) queue.Verdict {
		running <- c.Job.ID
		_, _ = io.WriteString(c.Output(), "data: {}\n\n")
		redistest.Came(t, goOn)
		return queue.Verdict{Kind: queue.Done, Status: 200}
	})
	r.busy()
	caller := r.open(t.Context(), prompt("hi", streamed))
	id := redistest.Came(t, running)
	job, err := r.queue.Job(t.Context(), "acme", id)
	if err != nil {
		t.Fatal(err)
	}
	out := &writes{httptest.NewRecorder(), make(chan []byte, 10)}
	x := r.proxy.newExchange(out, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil))
	x.status = http.StatusOK // a newline was sent
	v := &waitingCaller{calls: r.proxy.calls, exchange: x, job: job, stream: true, watch: r.queue.Watch(t.Context(), job)}
	ended := make(chan error, 1)
	go func() { ended <- v.sendAway(t.Context()) }()
	if got := string(redistest.Came(t, out.wrote)); got != "data: {}\n\n" {
		t.Errorf("got %q, want the first event", got)
	}
	if told := r.redis.Client().HGet(t.Context(), "lg:{main}:cancels", id).Val(); told != "" {
		t.Errorf("the run was told %q, want nothing", told)
	}
	close(goOn)
	if err := redistest.Came(t, ended); err != nil {
		t.Errorf("the caller's wait ended with %v", err)
	}
	if a := caller.rest(); !strings.Contains(a.body, "data: {}") {
		t.Errorf("got %q", a.body)
	}
}

// TestLeave: a waiting job is dropped with its caller; a running plain one continues to its end.
func TestLeave(t *testing.T) {
	r := newRig(t, single, nil)
	release := r.occupy()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.onWait(cancel)
	if a := r.do(ctx, "POST", "/v1/chat/completions", prompt("hi", `"max_tokens":5`)); a.err == nil {
		t.Fatalf("got %d %s, want no answer", a.status, a.body)
	}
	m := r.records(1)[0]
	job, err := r.queue.Job(t.Context(), "acme", m["job"].(string))
	if err != nil || job.State != queue.Cancelled || m["status"] != 499.0 {
		t.Errorf("record %v, job %+v, %v; want status 499 and a cancelled job", m, job, err)
	}
	release()
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	started(r, func(_ context.Context, c *queue.Claim) queue.Verdict {
		cancel()
		r.records(2) // the caller has left by now
		_, _ = io.WriteString(c.Output(), "whole")
		defer close(ended)
		return queue.Verdict{Kind: queue.Done, Status: 200}
	})
	r.busy()
	r.do(ctx, "POST", "/v1/chat/completions", prompt("hi", `"max_tokens":5`))
	redistest.Came(t, ended)
	id := r.records(2)[1]["job"].(string)
	for range 6000 {
		if job, err = r.queue.Job(t.Context(), "acme", id); err == nil && job.State == queue.Succeeded {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("job %+v, %v; want a job that succeeded", job, err)
}
