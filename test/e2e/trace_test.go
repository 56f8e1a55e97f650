package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// collected is an OTLP collector that keeps all spans posted to it.
type collected struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*spans.Span
	about []*common.KeyValue // resource attributes
	raw   bytes.Buffer
	token string
}

func newCollector(t *testing.T) *collected {
	c := &collected{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			in, _ = gzip.NewReader(r.Body)
		}
		body, err := io.ReadAll(in)
		var request collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &request) != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("posted to %s: no spans in %d bytes: %v", r.URL.Path, len(body), err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.token = r.Header.Get("X-Collector-Token")
		c.raw.Write(body)
		for _, resource := range request.ResourceSpans {
			c.about = append(c.about, resource.Resource.Attributes...)
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
		answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
	}))
	t.Cleanup(c.Close)
	return c
}

// find returns the span of a trace whose name has this prefix and for which is returns true, or
// nil if there is none yet.
func (c *collected) find(trace, name string, is func(*spans.Span) bool) *spans.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == trace && strings.HasPrefix(s.Name, name) && is(s) {
			return s
		}
	}
	return nil
}

func (c *collected) await(t *testing.T, trace, name string) *spans.Span {
	t.Helper()
	return c.awaitThe(t, trace, name, func(*spans.Span) bool { return true })
}

// awaitSent waits for the span of the attempt that was sent. On a slow machine an attempt whose
// quota has become stale is repeated.
func (c *collected) awaitSent(t *testing.T, trace string) *spans.Span {
	t.Helper()
	return c.awaitThe(t, trace, "chat gpt-4o-mini", func(s *spans.Span) bool { return attributes(s)["llmguard.outcome"] != "unsent" })
}

// awaitBelow waits for a direct child of a span.
func (c *collected) awaitBelow(t *testing.T, trace, name string, parent *spans.Span) {
	t.Helper()
	c.awaitThe(t, trace, name, func(s *spans.Span) bool { return bytes.Equal(s.ParentSpanId, parent.SpanId) })
}

func (c *collected) awaitThe(t *testing.T, trace, name string, is func(*spans.Span) bool) *spans.Span {
	t.Helper()
	for range 3000 {
		if s := c.find(trace, name, is); s != nil {
			return s
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		t.Logf("span %q of trace %x", s.Name, s.TraceId)
	}
	t.Fatalf("no span %q of trace %s was exported", name, trace)
	return nil
}

func attributes(s *spans.Span) map[string]any {
	out := map[string]any{}
	for _, a := range s.Attributes {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			out[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[a.Key] = v.IntValue
		case *common.AnyValue_BoolValue:
			out[a.Key] = v.BoolValue
		}
	}
	return out
}

func below(t *testing.T, child, parent *spans.Span) {
	t.Helper()
	if !bytes.Equal(child.ParentSpanId, parent.SpanId) {
		t.Errorf("%q is not below %q", child.Name, parent.Name)
	}
}

const callersSpan = "00f067aa0ba902b7" // the caller's own span

func traceparent(trace string, sampled bool) string {
	flags := "00"
	if sampled {
		flags = "01"
	}
	return fmt.Sprintf("00-%s-%s-%s", trace, callersSpan, flags)
}

// TestTraces: a live call and a job continue their callers' traces through proxy, worker and
// provider. Spans record the cost but no content.
func TestTraces(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	s := newStack(t, fakeprovider.Options{}, fmt.Sprintf("tracing: {endpoint: %q, headers: {X-Collector-Token: tenant-1}}\n", c.URL)+simple(`[{name: day, window: 1d, amount: "$5"}]`))
	s.env = []string{"OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_SERVICE_NAME=llmguard-under-test"}
	p := s.proxy()
	s.worker()
	const queued, unsampled = "aaf92f3577b34da6a3ce929d0e0e4736", "bbf92f3577b34da6a3ce929d0e0e4736"
	body := chat("gpt-4o-mini", "the-secret-prompt", `"max_tokens":7`)
	call := func(trace string, sampled bool, header ...string) answer {
		a := post(p.URL+"/chat/completions", s.keys["alice"], body, append(header, "Traceparent", traceparent(trace, sampled))...)
		if a.err != nil || a.status >= 300 {
			t.Fatalf("call: %d %s %v", a.status, a.body, a.err)
		}
		return a
	}
	call(unsampled, false)
	const strangers = "ccf92f3577b34da6a3ce929d0e0e4736"
	post(p.URL+"/chat/completions", "lg_live_wrong", body, "Traceparent", traceparent(strangers, true))
	var said struct {
		Model string
		Usage struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
		}
	}
	live := ""
	for n := range 50 { // a call whose quota was stale ran as a job, with other spans
		live = fmt.Sprintf("4bf92f3577b34da6a3ce929d0e0e47%02x", n)
		if err := json.Unmarshal([]byte(call(live, true).body), &said); err != nil {
			t.Fatal(err)
		}
		if attributes(c.await(t, live, "chat gpt-4o-mini"))["llmguard.outcome"] != "unsent" {
			break
		}
	}
	call(queued, true, "Prefer", "respond-async")

	server := c.await(t, live, "POST chat.completions")
	if got := hex.EncodeToString(server.ParentSpanId); got != callersSpan || server.Kind != spans.Span_SPAN_KIND_SERVER {
		t.Errorf("the server's span is a %v below %s, want below the caller's %s", server.Kind, got, callersSpan)
	}
	provider := c.await(t, live, "chat gpt-4o-mini")
	for _, child := range []*spans.Span{c.await(t, live, "hold budget"), c.await(t, live, "take quota"), provider, c.await(t, live, "settle")} {
		below(t, child, server)
	}
	got := attributes(provider)
	for name, want := range map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-4o-mini", "gen_ai.response.model": said.Model,
		"gen_ai.usage.input_tokens": said.Usage.Prompt, "gen_ai.usage.output_tokens": said.Usage.Completion,
		"gen_ai.request.max_tokens": int64(7), "llmguard.org": "acme", "llmguard.user": "alice", "llmguard.outcome": "completed",
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if provider.Kind != spans.Span_SPAN_KIND_CLIENT || said.Usage.Completion == 0 {
		t.Errorf("the provider's span is a %v, with usage %+v", provider.Kind, said.Usage)
	}

	accepted, sent := c.await(t, queued, "POST chat.completions"), c.awaitSent(t, queued)
	job := c.awaitThe(t, queued, "run job", func(s *spans.Span) bool { return bytes.Equal(s.SpanId, sent.ParentSpanId) })
	below(t, job, accepted)
	below(t, c.await(t, queued, "wait in queue"), accepted)
	c.awaitBelow(t, queued, "hold budget", job)
	c.awaitBelow(t, queued, "settle", job)

	for _, want := range []struct {
		trace string
		span  []byte
		flags string
	}{{live, provider.SpanId, "01"}, {queued, sent.SpanId, "01"}} {
		if header := fmt.Sprintf("00-%s-%x-%s", want.trace, want.span, want.flags); !told(s, header) {
			t.Errorf("the provider was never sent the traceparent %s", header)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == unsampled {
			t.Errorf("the span %q of a call was exported whose caller wants none", s.Name)
		}
		if hex.EncodeToString(s.TraceId) == strangers {
			t.Errorf("the span %q continues the trace of a caller who is not known", s.Name)
		}
	}
	if c.token != "tenant-1" || !bytes.Contains(c.raw.Bytes(), []byte("llmguard-under-test")) {
		t.Errorf("the collector got the token %q and the resource %v", c.token, c.about)
	}
	for _, secret := range []string{"the-secret-prompt", providerKey, s.keys["alice"]} {
		if bytes.Contains(c.raw.Bytes(), []byte(secret)) {
			t.Errorf("the spans hold %q", secret)
		}
	}
}

// told reports whether the provider received a traceparent header.
func told(s *stack, header string) bool {
	for _, r := range s.fake.Log() {
		if r.Header.Get("Traceparent") == header {
			return true
		}
	}
	return false
}

// TestTracesOff: without tracing, a caller's trace context is not forwarded.
func TestTracesOff(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, simple("[]"))
	p := s.proxy()
	a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o-mini", "hi", ""), "Traceparent", traceparent("4bf92f3577b34da6a3ce929d0e0e4736", true))
	if a.status != http.StatusOK {
		t.Fatalf("call: %d %s", a.status, a.body)
	}
	for _, r := range s.fake.Log() {
		if h := r.Header.Get("Traceparent"); h != "" {
			t.Errorf("the provider was sent traceparent %q", h)
		}
	}
}
