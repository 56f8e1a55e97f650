package tracing

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/llmguard/llmguard/internal/redistest"
)

// someSpans returns a batch of one span.
func someSpans() []*tracepb.ResourceSpans {
	span := &tracepb.Span{Name: "chat gpt-4o"}
	return []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{span}}}}}
}

// collector returns a client, with short pauses, of a collector served by h.
func collector(t *testing.T, h http.HandlerFunc) *client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	to, err := newTarget(Options{Endpoint: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(to)
	c.pause = time.Microsecond
	t.Cleanup(func() { _ = c.Stop(t.Context()) })
	return c
}

// TestUpload: spans are sent according to OTLP, compressed if configured.
func TestUpload(t *testing.T) {
	for _, compression := range []string{"", "gzip"} {
		t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
		var got tracepb.TracesData
		c := collector(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" ||
				r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("Content-Encoding") != compression {
				t.Errorf("got %s %s with %v", r.Method, r.URL, r.Header)
			}
			body, err := unpack(r)
			if err == nil {
				err = proto.Unmarshal(body, &got)
			}
			if err != nil {
				t.Error(err)
			}
		})
		if err := c.UploadTraces(t.Context(), someSpans()); err != nil {
			t.Fatal(err)
		}
		if want := (&tracepb.TracesData{ResourceSpans: someSpans()}); !proto.Equal(&got, want) {
			t.Errorf("compression %q: got %v, want %v", compression, &got, want)
		}
	}
}

func unpack(r *http.Request) ([]byte, error) {
	if r.Header.Get("Content-Encoding") == "" {
		return io.ReadAll(r.Body)
	}
	packed, err := gzip.NewReader(r.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(packed)
}

// TestUploadRetries: an export is retried only while the collector is busy.
func TestUploadRetries(t *testing.T) {
	for status, want := range map[int]int32{
		http.StatusTooManyRequests:     3,
		http.StatusBadGateway:          3,
		http.StatusServiceUnavailable:  3,
		http.StatusGatewayTimeout:      3,
		http.StatusBadRequest:          1,
		http.StatusUnauthorized:        1,
		http.StatusInternalServerError: 1,
	} {
		var requests atomic.Int32
		c := collector(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil || len(body) == 0 {
				t.Errorf("got %d bytes and %v", len(body), err)
			}
			if requests.Add(1) < 3 {
				http.Error(w, "the reason", status)
			}
		})
		err := c.UploadTraces(t.Context(), someSpans())
		if got := requests.Load(); got != want {
			t.Errorf("%d: got %d requests, want %d", status, got, want)
		}
		if want == 1 && (err == nil || !strings.Contains(err.Error(), "the reason")) {
			t.Errorf("%d: got %v, want the collector's reason", status, err)
		}
		if want > 1 && err != nil {
			t.Errorf("%d: got %v, want success", status, err)
		}
	}
}

// TestUploadBounded: an export that would have to wait beyond its deadline fails immediately,
// with the reason.
func TestUploadBounded(t *testing.T) {
	var requests atomic.Int32
	c := collector(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := c.UploadTraces(ctx, someSpans())
	if err == nil || !strings.Contains(err.Error(), "503") || requests.Load() != 1 {
		t.Errorf("got %v after %d requests, want the status of one", err, requests.Load())
	}
	if ctx.Err() != nil {
		t.Error("it ended at its deadline and not at once")
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                              0,
		"7":                             7 * time.Second,
		"-7":                            0,
		"soon":                          0,
		"Fri, 02 Jan 2026 03:04:15 GMT": 10 * time.Second,
		"Fri, 02 Jan 2026 03:03:00 GMT": 0,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
	}
}

// TestStop: stopping interrupts an export.
func TestStop(t *testing.T) {
	arrived := make(chan struct{})
	c := collector(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // needed to notice the end of the request
		close(arrived)
		<-r.Context().Done()
	})
	ended := make(chan error)
	go func() { ended <- c.UploadTraces(context.WithoutCancel(t.Context()), someSpans()) }()
	redistest.Came(t, arrived)
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := redistest.Came(t, ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it is cancelled", err)
	}
}

// TestTimeout: a request without a response times out.
func TestTimeout(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10")
	var requests atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	c := collector(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if requests.Add(1) == 2 {
			cancel()
		}
		<-r.Context().Done()
	})
	if err := c.UploadTraces(ctx, someSpans()); err == nil || ctx.Err() == nil {
		t.Errorf("got %v after %d requests, want that it was sent again", err, requests.Load())
	}
}

// TestRejected: if the collector accepts part of a batch, the rejected spans count as failed
// and the others as exported.
func TestRejected(t *testing.T) {
	for _, c := range []struct {
		name             string
		rejected         uint64
		exported, failed float64
	}{
		{"none", 0, 3, 0},
		{"one", 1, 2, 1},
		{"more than there are", 9, 0, 3},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write(partialSuccess(c.rejected, "too old"))
		}))
		t.Cleanup(srv.Close)
		tracer, err := New(Options{Endpoint: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_, span := tracer.Serve(t.Context(), "POST", nil, time.Now())
			span.End()
		}
		if err := tracer.Close(t.Context()); err != nil {
			t.Error(err)
		}
		exported := testutil.ToFloat64(tracer.exporter.spans.WithLabelValues("exported"))
		failed := testutil.ToFloat64(tracer.exporter.spans.WithLabelValues("failed"))
		if exported != c.exported || failed != c.failed {
			t.Errorf("%s: got %v exported and %v failed, want %v and %v", c.name, exported, failed, c.exported, c.failed)
		}
	}
}

// partialSuccess returns an encoded ExportTraceServiceResponse.
func partialSuccess(rejected uint64, message string) []byte {
	partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), rejected)
	partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType), message)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
}

// TestWrongAnswer: parsing an invalid protobuf response stops safely.
func TestWrongAnswer(t *testing.T) {
	whole := partialSuccess(2, "text")
	for n := range len(whole) {
		_ = rejected(whole[:n]) // must not panic
	}
	for _, answer := range []string{"", "<html>", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x0a\x01"} {
		if err := rejected([]byte(answer)); err != nil {
			t.Errorf("%q: got %v, want no error", answer, err)
		}
	}
	if err := rejected(whole); err == nil || !strings.Contains(err.Error(), "2 spans: text") {
		t.Errorf("got %v, want the number and the message", err)
	}
}
