// Package tracing makes the spans of calls in OpenTelemetry's form and exports
// them by OTLP over HTTP. Where it is off, which is the default, every function
// returns at once and allocates nothing. A span carries ids, models, counts and
// outcomes; never a prompt, an answer or a key.
//
// It says nothing of what is worth a span: the packages that do the work do.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
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

// scope is the instrumentation scope that every span names.
const scope = "github.com/llmguard/llmguard"

// Options are what a Tracer is built from. What is left out is as the standard
// OTEL_ variables of the environment say, or as OpenTelemetry's defaults.
type Options struct {
	// Endpoint is the collector's http or https URL. /v1/traces is added to one
	// without a path.
	Endpoint string
	// Headers go with every export.
	Headers map[string]string
	// SampleRatio is the part, in percent, of the calls that are traced whose
	// callers did not decide; 0 leaves it to the environment.
	SampleRatio int
	// Version is the program's own, for the resource.
	Version string
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Tracer begins traces. Nil is one that is off. It is safe for concurrent use.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
}

// wire is how a trace goes from process to process: W3C's traceparent and
// tracestate.
var wire propagation.TraceContext

// New returns a Tracer; Close it to export what it still has. It opens no
// connection: a collector that is away costs spans, never calls.
func New(o Options) (*Tracer, error) {
	ctx := context.Background() //nolint:forbidigo // nothing here waits
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithAttributes(attribute.String("service.name", "llmguard"), attribute.String("service.version", o.Version)),
		resource.WithFromEnv()) // last, so that it wins
	if err != nil {
		return nil, fmt.Errorf("tracing: OTEL_RESOURCE_ATTRIBUTES: %w", err)
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

// tracesURL is where spans are posted.
func tracesURL(endpoint string) string {
	if _, rest, _ := strings.Cut(endpoint, "://"); strings.Contains(strings.TrimSuffix(rest, "/"), "/") {
		return endpoint
	}
	return strings.TrimSuffix(endpoint, "/") + "/v1/traces"
}

// Close exports what has ended, as far as ctx allows.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Serve begins the span, as of a time, of a request that came in; it continues the trace
// that its headers name, if any.
func (t *Tracer) Serve(ctx context.Context, name string, h http.Header, at time.Time) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx = wire.Extract(ctx, propagation.HeaderCarrier(h))
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(at))
	return ctx, Span{span}
}

// Resume begins a span, as of a time, of work that another process put off: it
// goes on with the trace that Context returned there, or begins one when that is
// empty.
func (t *Tracer) Resume(ctx context.Context, name, from string, at time.Time) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	parent, state, _ := strings.Cut(from, " ")
	ctx = wire.Extract(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": state})
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(at))
	return ctx, Span{span}
}

// made is set once there is a Tracer. Without one no context has a span, and what
// every call does several times need not look for it.
var made atomic.Bool

// Context is the trace that ctx is part of, in one line for Resume; empty when
// there is none.
func Context(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	out := propagation.MapCarrier{}
	wire.Inject(ctx, out)
	return strings.TrimSuffix(out["traceparent"]+" "+out["tracestate"], " ")
}

// Header is how the trace that ctx is part of goes on over HTTP; nil when there
// is none.
func Header(ctx context.Context) http.Header {
	if !made.Load() || !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	h := http.Header{}
	wire.Inject(ctx, propagation.HeaderCarrier(h))
	return h
}

// On reports whether what happens in ctx is recorded. What costs something to
// say is asked first.
func On(ctx context.Context) bool { return made.Load() && trace.SpanFromContext(ctx).IsRecording() }

// Start begins a span below the one of ctx; without one it does nothing.
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

// Span is one step of a call. The zero Span is one that is not recorded; its
// methods do nothing. It may be ended by another goroutine than it was begun by.
type Span struct{ span trace.Span }

// On reports whether the span is recorded.
func (s Span) On() bool { return s.span != nil && s.span.IsRecording() }

// TraceID is the trace's id in hexadecimal; empty when tracing is off.
func (s Span) TraceID() string {
	if s.span == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// Name gives the span the name that is known by now.
func (s Span) Name(name string) {
	if s.span != nil {
		s.span.SetName(name)
	}
}

// String says something of the span, unless it is empty.
func (s Span) String(name, value string) {
	if s.span != nil && value != "" {
		s.span.SetAttributes(attribute.String(name, value))
	}
}

// Int says a number.
func (s Span) Int(name string, value int64) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int64(name, value))
	}
}

// Bool says yes or no.
func (s Span) Bool(name string, value bool) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Bool(name, value))
	}
}

// Event says that something happened at a time within the span.
func (s Span) Event(name string, at time.Time) {
	if s.span != nil {
		s.span.AddEvent(name, trace.WithTimestamp(at))
	}
}

// Fail says that what the span is about did not succeed, and the kind of the
// error, of which there are few. It is not the error's text: that may quote
// what a caller sent.
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
