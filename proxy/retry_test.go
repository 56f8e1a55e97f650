package proxy

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/queue"
)

// retryingRig retries failed jobs for the given time; its provider fails the first calls in this way.
func retryingRig(t *testing.T, span time.Duration, fault fakeprovider.Behaviour, failures int32) *rig {
	t.Helper()
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	if err := r.queue.Configure([]queue.Pool{{ID: "main"}}, queue.Options{RetryFor: span}); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		if calls.Add(1) <= failures {
			return fault
		}
		return fakeprovider.Behaviour{}
	})
	r.worker(nil)
	return r
}

// failures are answers with which a provider fails, whatever their status, and the code of their error.
var failures = []struct {
	fault fakeprovider.Behaviour
	code  string
}{
	{fakeprovider.Behaviour{Status: 500, Code: "bad_day"}, "bad_day"},
	{fakeprovider.Behaviour{Status: 504, Code: "bad_day"}, "bad_day"},
	{fakeprovider.Behaviour{Status: 200, Body: `{"error":{"message":"x","code":"bad_day"}}`}, "bad_day"},
	{fakeprovider.Behaviour{Status: 200, Body: `{"id":"r","object":"response","status":"failed","error":{"code":"server_error","message":"x"},"output":[],"usage":null}`}, "server_error"},
	{fakeprovider.Behaviour{Status: 200, Body: "html"}, "upstream_error"},
	{fakeprovider.Behaviour{Status: 200, Body: "empty"}, "upstream_error"},
}

// TestProviderFailureIsRetried: a job that fails at the provider waits and is tried again. It holds
// money while an attempt runs, and none in between. It is charged its answer.
func TestProviderFailureIsRetried(t *testing.T) {
	for _, x := range failures {
		t.Run(fmt.Sprint(x.fault.Status, x.fault.Body), func(t *testing.T) {
			t.Parallel()
			r := retryingRig(t, time.Hour, x.fault, 1)
			id := r.call("POST", "/v1/responses", `{"model":"gpt-4o","input":"hi","max_output_tokens":20}`, "Prefer", "respond-async").id()
			r.until("the first attempt has failed", func() bool { return r.jobAt(id).Next != nil })
			v := r.jobAt(id)
			if v.Status != queue.Queued || v.Attempts != 1 || v.ETA == nil || *v.ETA > 2 || v.WaitingFor != "retry" {
				t.Errorf("between the attempts: %+v", v)
			}
			if n := r.held(); n != 0 {
				t.Errorf("%d nano-USD are held between the attempts", n)
			}
			r.until("it has ended", func() bool { return r.jobAt(id).Status.Terminal() })
			if v = r.jobAt(id); v.Status != queue.Succeeded || v.Attempts != 2 || *v.HTTPStatus != 200 {
				t.Errorf("in the end: %+v", v)
			}
			if list := r.entries(); len(list) != 1 || usd(int64(list[0].Cost)) != *v.Charged {
				t.Errorf("the ledger has %+v, and %s is charged", list, *v.Charged)
			}
		})
	}
}

// TestLastFailureIsADeadLetter: if there is no time for another attempt, the job's answer is that
// of the provider, and its record says how often it was tried.
func TestLastFailureIsADeadLetter(t *testing.T) {
	for _, x := range failures {
		t.Run(fmt.Sprint(x.fault.Status, x.fault.Body), func(t *testing.T) {
			t.Parallel()
			r := retryingRig(t, time.Second, x.fault, 9)
			j, _ := r.submitted()
			r.until("it has ended", func() bool { return r.jobAt(j.ID).Status.Terminal() })
			if v := r.jobAt(j.ID); v.Status != queue.Failed || v.Attempts != 1 || v.Error == nil || v.Error.Code != x.code || *v.Charged != "0.000000000" {
				t.Errorf("%+v", v)
			}
			dead, _, err := r.queue.DeadLetters(t.Context(), "main", "", 9)
			if err != nil || len(dead) != 1 || dead[0].Attempt != 1 {
				t.Errorf("dead letters %v, %v", dead, err)
			}
			if list := r.entries(); len(list) != 0 {
				t.Errorf("the ledger has %+v", list)
			}
		})
	}
}

// TestUnreachableProviderIsRetried: a job whose provider is unreachable is also retried, until
// there is no time for another attempt.
func TestUnreachableProviderIsRetried(t *testing.T) {
	r := retryingRig(t, 3*time.Second, fakeprovider.Behaviour{}, 0)
	if err := r.fake.Close(); err != nil {
		t.Fatal(err)
	}
	j, _ := r.submitted()
	r.until("it has ended", func() bool { return r.jobAt(j.ID).Status.Terminal() })
	if v := r.jobAt(j.ID); v.Status != queue.Failed || v.Attempts != 2 || v.Error == nil || v.Error.Code != "upstream_error" {
		t.Errorf("in the end: %+v", v)
	}
}

// TestOverloadedProviderMakesWait: connected callers and jobs wait for a provider that is busy, whatever
// the status of its answer; a refused attempt is not a failed one. Anthropic's 529 counts as a 503.
func TestOverloadedProviderMakesWait(t *testing.T) {
	for _, fault := range []fakeprovider.Behaviour{
		{Status: 529},
		{Status: 200, Body: `{"error":{"message":"slow down","code":429}}`},
		{Status: 200, Body: `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`},
	} {
		for _, extra := range []string{`"max_tokens":5`, `"max_tokens":5,"stream":true`} {
			t.Run(fmt.Sprint(fault.Status, fault.Body, extra), func(t *testing.T) {
				t.Parallel()
				r := retryingRig(t, 0, fault, 1)
				if a := r.chat(prompt("hi", extra), "Prefer", "wait=60"); a.status != 200 || a.header.Get(headerJob) == "" {
					t.Errorf("got status %d, %s", a.status, a.body)
				}
				r = retryingRig(t, 0, fault, 2) // a failed job would not be retried
				id := r.chat(prompt("hi", extra), "Prefer", "respond-async").id()
				r.until("the job has ended", func() bool { return r.jobAt(id).Status.Terminal() })
				if v := r.jobAt(id); v.Status != queue.Succeeded || len(r.entries()) != 1 {
					t.Errorf("the job: %+v", v)
				}
			})
		}
	}
}
