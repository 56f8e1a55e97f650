package proxy

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/queue"
)

// retryingRig retries failed jobs for the given time; its provider fails the first calls.
func retryingRig(t *testing.T, span time.Duration, status int, failures int32) *rig {
	t.Helper()
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	if err := r.queue.Configure([]queue.Pool{{ID: "main"}}, queue.Options{RetryFor: span}); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		if calls.Add(1) <= failures {
			return fakeprovider.Behaviour{Status: status, Code: "bad_day"}
		}
		return fakeprovider.Behaviour{}
	})
	r.worker(nil)
	return r
}

// TestProviderFailureIsRetried: a job that fails at the provider waits and is tried again. It holds
// money while an attempt runs, and none in between.
func TestProviderFailureIsRetried(t *testing.T) {
	r := retryingRig(t, time.Hour, 500, 1)
	j, _ := r.submitted()
	r.until("the first attempt has failed", func() bool { return r.jobAt(j.ID).Next != nil })
	v := r.jobAt(j.ID)
	if v.Status != queue.Queued || v.Attempts != 1 || v.ETA == nil || *v.ETA < 1 || *v.ETA > 2 || v.WaitingFor != "pool:main" {
		t.Errorf("between the attempts: %+v", v)
	}
	if n := r.held(); n != 0 {
		t.Errorf("%d nano-USD are held between the attempts", n)
	}
	r.until("it has ended", func() bool { return r.jobAt(j.ID).Status.Terminal() })
	if v = r.jobAt(j.ID); v.Status != queue.Succeeded || v.Attempts != 2 || *v.HTTPStatus != 200 {
		t.Errorf("in the end: %+v", v)
	}
}

// TestLastFailureIsADeadLetter: if there is no time for another attempt, the job's answer is that
// of the provider, and its record says how often it was tried.
func TestLastFailureIsADeadLetter(t *testing.T) {
	for _, status := range []int{500, 502, 504} {
		r := retryingRig(t, time.Second, status, 9)
		j, _ := r.submitted()
		r.until("it has ended", func() bool { return r.jobAt(j.ID).Status.Terminal() })
		if v := r.jobAt(j.ID); v.Status != queue.Failed || v.Attempts != 1 || v.Error == nil || v.Error.Code != "bad_day" {
			t.Errorf("%d: %+v", status, v)
		}
		dead, _, err := r.queue.DeadLetters(t.Context(), "main", "", 9)
		if err != nil || len(dead) != 1 || dead[0].Attempt != 1 {
			t.Errorf("%d: dead letters %v, %v", status, dead, err)
		}
	}
}

// TestUnreachableProviderIsRetried: a job whose provider is unreachable is also retried, until
// there is no time for another attempt.
func TestUnreachableProviderIsRetried(t *testing.T) {
	r := retryingRig(t, 3*time.Second, 0, 0)
	if err := r.fake.Close(); err != nil {
		t.Fatal(err)
	}
	j, _ := r.submitted()
	r.until("it has ended", func() bool { return r.jobAt(j.ID).Status.Terminal() })
	if v := r.jobAt(j.ID); v.Status != queue.Failed || v.Attempts != 2 || v.Error == nil || v.Error.Code != "upstream_error" {
		t.Errorf("in the end: %+v", v)
	}
}

// TestOverloadedProviderMakesWait: Anthropic's 529 counts as a 503, so the call waits.
func TestOverloadedProviderMakesWait(t *testing.T) {
	r := retryingRig(t, 0, 529, 1)
	if a := r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "wait=60"); a.status != 200 || a.header.Get(headerJob) == "" {
		t.Errorf("got status %d, %s", a.status, a.body)
	}
}
