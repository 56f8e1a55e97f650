package proxy

import (
	"context"
	"net/http"
	"testing"

	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/queue"
)

// TestAnswersAreNotKeptOnTheWay: no answer may be cached or sniffed.
func TestAnswersAreNotKeptOnTheWay(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	for name, a := range map[string]answer{
		"an answer":       r.chat(prompt("hi", "")),
		"a stream":        r.chat(prompt("hi", `"stream":true`)),
		"a refusal":       r.chat("{}"),
		"a wrong key":     r.chat(prompt("hi", ""), "Authorization", "Bearer x"),
		"a greeting":      r.call(http.MethodGet, "/", ""),
		"an unknown path": r.call(http.MethodGet, "/v1/nothing", ""),
		"a list":          r.call(http.MethodGet, "/v1/models", ""),
	} {
		if a.err != nil || a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d, %v, %v", name, a.status, a.header, a.err)
		}
	}
}

// TestTracesOfStrangersAreNotContinued: only an authenticated caller decides which trace a request
// belongs to, and whether it is recorded.
func TestTracesOfStrangersAreNotContinued(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	tracer, err := tracing.New(tracing.Options{Endpoint: "http://127.0.0.1:1", SampleRatio: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracer.Close(context.WithoutCancel(t.Context())) })
	r := newRig(t, queue.Pool{}, func(o *Options) { o.Tracer = tracer })
	for _, key := range []string{"Bearer x", "", "Bearer " + r.key} {
		r.chat(prompt("hi", ""), "Authorization", key, "Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	}
	for i, rec := range r.records(3) {
		if known := i == 2; (rec["trace"] == trace) != known || rec["trace"] == nil {
			t.Errorf("request %d is of the trace %v, of its caller's: want %v", i, rec["trace"], known)
		}
	}
}
