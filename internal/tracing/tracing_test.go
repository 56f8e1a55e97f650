package tracing

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestOff: without a tracer nothing is done or allocated, even if the process has one for other
// calls.
func TestOff(t *testing.T) {
	was := made.Load()
	t.Cleanup(func() { made.Store(was) })
	for _, others := range []bool{false, true} {
		made.Store(others)
		off(t)
	}
}

func off(t *testing.T) {
	t.Helper()
	h := http.Header{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	var none *Tracer
	allocated := testing.AllocsPerRun(100, func() {
		ctx, server := none.Serve(t.Context(), "POST", h, time.Now())
		ctx, span := Start(ctx, "hold")
		if On(ctx) || span.On() || server.On() || Header(ctx) != nil || Context(ctx) != "" || server.TraceID() != "" {
			t.Fatal("something is traced")
		}
		span.Int("n", 1)
		span.String("s", "text")
		span.Bool("b", true)
		span.Event("e", time.Time{})
		span.Fail("kind")
		span.End()
		server.End()
	})
	if allocated != 0 {
		t.Errorf("tracing that is off allocates %.0f times a call", allocated)
	}
	if err := none.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTracesURL(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://collector:4318":            "http://collector:4318/v1/traces",
		"http://collector:4318/":           "http://collector:4318/v1/traces",
		"https://example.com/otlp/traces":  "https://example.com/otlp/traces",
		"https://example.com/otlp/traces/": "https://example.com/otlp/traces/",
	} {
		if got := tracesURL(endpoint); got != want {
			t.Errorf("tracesURL(%q) = %q, want %q", endpoint, got, want)
		}
	}
}

// TestResume: work deferred by another process continues its trace, including tracestate.
func TestResume(t *testing.T) {
	tracer, err := New(Options{Endpoint: refusing(t)})
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "Tracestate": {"vendor=a,other=b"}}
	ctx, span := tracer.Serve(t.Context(), "POST", h, time.Now())
	line := Context(ctx)
	if strings.ContainsAny(line, "\r\n") || !strings.HasSuffix(line, " vendor=a,other=b") {
		t.Errorf("the trace in one line is %q", line)
	}
	resumed, later := tracer.Resume(t.Context(), "job", line, time.Now())
	if later.TraceID() != span.TraceID() || Header(resumed).Get("Tracestate") != "vendor=a,other=b" {
		t.Errorf("resumed as %s with %v, want %s", later.TraceID(), Header(resumed), span.TraceID())
	}
	if _, fresh := tracer.Resume(t.Context(), "job", "", time.Now()); !fresh.On() || fresh.TraceID() == span.TraceID() {
		t.Errorf("a job without a trace has %q", fresh.TraceID())
	}
}

// TestSampleRatio: callers decide for their own calls, and the ratio for all others.
func TestSampleRatio(t *testing.T) {
	tracer, err := New(Options{Endpoint: refusing(t), SampleRatio: 1})
	if err != nil {
		t.Fatal(err)
	}
	const calls = 10_000
	sampled := 0
	for range calls {
		_, span := tracer.Serve(t.Context(), "POST", nil, time.Now())
		if span.On() {
			sampled++
		}
	}
	if sampled == 0 || sampled > calls/10 { // about 100
		t.Errorf("%d of %d calls are traced at 1%%", sampled, calls)
	}
	decided := http.Header{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	if _, span := tracer.Serve(t.Context(), "POST", decided, time.Now()); !span.On() {
		t.Error("a call is not traced whose caller traces it")
	}
}

// TestCollectorAway: spans that cannot be exported are counted, and cause no error.
func TestCollectorAway(t *testing.T) {
	metrics := prometheus.NewRegistry()
	tracer, err := New(Options{Endpoint: refusing(t), Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracer.Serve(t.Context(), "POST", nil, time.Now())
	span.End()
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if failed := testutil.ToFloat64(tracer.exporter.spans.WithLabelValues("failed")); failed != 1 {
		t.Errorf("%v spans are counted as failed, want 1", failed)
	}
}

// refusing returns the URL of a collector that rejects everything.
func refusing(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	t.Cleanup(s.Close)
	return s.URL
}
