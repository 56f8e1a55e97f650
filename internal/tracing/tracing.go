// Package tracing creates OpenTelemetry spans for calls and exports them by OTLP over HTTP. By
// default tracing is off, and every function returns immediately without allocating. A span
// contains ids, models, counts and outcomes, but never a prompt, a response or a key.
//
// The packages that do the work decide what becomes a span.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// scope is the instrumentation scope of every span.
const scope = "github.com/llmguard/llmguard"

// Options configure a Tracer. Unset fields have the value of the standard OTEL_ environment
// variables, or OpenTelemetry's default.
type Options struct {
	// Endpoint is the collector's http or https URL. /v1/traces is added to one
	// without a path.
	Endpoint string
	// Headers are sent with every export.
	Headers map[string]string
	// SampleRatio is the percentage of calls to trace if the caller has not decided; 0 leaves
	// it to the environment.
	SampleRatio int
	// Version is the program's version, for the resource attributes.
	Version string
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Tracer starts traces. A nil Tracer is off. It is safe for concurrent use.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
}

// wire propagates traces between processes with W3C's traceparent and tracestate.
var wire propagation.TraceContext

// New returns a Tracer; Close exports its remaining spans. New opens no connection: if the
// collector is unavailable, spans are lost, but calls are not affected.
func New(o Options) (*Tracer, error) {
	ctx := context.Background() //nolint:forbidigo // nothing here waits
	about, err := aboutProcess(ctx, o.Version)
	if err != nil {
		return nil, err
	}
	to, err := newTarget(o)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	out, err := otlptrace.New(ctx, newClient(to))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	watched := newExporter(out, o.Log, o.Metrics)
	options := []sdktrace.TracerProviderOption{sdktrace.WithBatcher(watched), sdktrace.WithResource(about)}
	if o.SampleRatio > 0 {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(o.SampleRatio)/
			100))))
	}
	provider := sdktrace.NewTracerProvider(options...)
	made.Store(true)
	return &Tracer{
		provider: provider, tracer: provider.Tracer(scope, trace.WithInstrumentationVersion(o.Version)),
		exporter: watched,
	}, nil
}

// aboutProcess returns the resource attributes of this process.
func aboutProcess(ctx context.Context, version string) (*resource.Resource, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithAttributes(attribute.String("service.name", "llmguard"), attribute.String("service.version", version),
			attribute.String("service.instance.id", host+":"+strconv.Itoa(os.Getpid()))),
		resource.WithFromEnv()) // last, so that it takes precedence
	if err != nil {
		return nil, fmt.Errorf("tracing: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return about, nil
}

// Close exports the ended spans, as far as ctx allows.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Serve starts the span of an incoming request at a given time; it continues the trace in its
// headers, if any.
func (t *Tracer) Serve(ctx context.Context, name string, h http.Header, at time.Time) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx = wire.Extract(ctx, propagation.HeaderCarrier(h))
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(at))
	return ctx, Span{span}
}

// Resume starts a span, at a given time, for work that another process deferred. It continues
// the trace that Context returned there, or starts a new one if from is empty.
func (t *Tracer) Resume(ctx context.Context, name, from string, at time.Time) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	parent, state, _ := strings.Cut(from, " ")
	ctx = wire.Extract(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": state})
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(at))
	return ctx, Span{span}
}

// made is set once there is a Tracer. Until then no context has a span, and the lookup, which
// every call does several times, can be skipped.
var made atomic.Bool

// Context returns the trace of ctx as one line for Resume, or "" if there is none.
func Context(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	out := propagation.MapCarrier{}
	wire.Inject(ctx, out)
	return strings.TrimSuffix(out["traceparent"]+" "+out["tracestate"], " ")
}

// Header returns the headers that propagate the trace of ctx over HTTP, or nil if there is
// none.
func Header(ctx context.Context) http.Header {
	if !made.Load() || !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	h := http.Header{}
	wire.Inject(ctx, propagation.HeaderCarrier(h))
	return h
}

// On reports whether the span in ctx is recorded. Check it before computing expensive
// attributes.
func On(ctx context.Context) bool { return made.Load() && trace.SpanFromContext(ctx).IsRecording() }

// Start starts a child of the span in ctx; without one it does nothing.
func Start(ctx context.Context, name string) (context.Context, Span) {
	return start(ctx, name, trace.SpanKindInternal)
}

// StartRequest is Start for a request to another server.
func StartRequest(ctx context.Context, name string) (context.Context, Span) {
	return start(ctx, name, trace.SpanKindClient)
}

func start(ctx context.Context, name string, kind trace.SpanKind) (context.Context, Span) {
	if !made.Load() {
		return ctx, Span{}
	}
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithSpanKind(kind))
	return ctx, Span{span}
}

// Span is one step of a call. The zero Span is not recorded, and its methods do nothing. It may
// be ended by another goroutine than the one that started it.
type Span struct{ span trace.Span }

// On reports whether the span is recorded.
func (s Span) On() bool { return s.span != nil && s.span.IsRecording() }

// TraceID returns the trace's id in hexadecimal, or "" if tracing is off.
func (s Span) TraceID() string {
	if s.span == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// Name renames the span, once the name is known.
func (s Span) Name(name string) {
	if s.span != nil {
		s.span.SetName(name)
	}
}

// String sets a string attribute, unless the value is empty.
func (s Span) String(name, value string) {
	if s.span != nil && value != "" {
		s.span.SetAttributes(attribute.String(name, value))
	}
}

// Int sets an integer attribute.
func (s Span) Int(name string, value int64) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int64(name, value))
	}
}

// Bool sets a boolean attribute.
func (s Span) Bool(name string, value bool) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Bool(name, value))
	}
}

// Event adds an event at a time within the span.
func (s Span) Event(name string, at time.Time) {
	if s.span != nil {
		s.span.AddEvent(name, trace.WithTimestamp(at))
	}
}

// Fail marks the span as failed, with the kind of the error, which must be from a small set. It
// must not be the error's text, which may quote what a caller sent.
func (s Span) Fail(kind string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String("error.type", kind))
		s.span.SetStatus(codes.Error, kind)
	}
}

// End ends the span; later calls do nothing.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}
