package tracing

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// exporter counts exported spans, and logs once when the collector becomes unavailable and when
// it is back. The SDK would log every attempt.
type exporter struct {
	sdktrace.SpanExporter
	log   *slog.Logger
	spans *prometheus.CounterVec
	away  atomic.Bool
}

func newExporter(out sdktrace.SpanExporter, log *slog.Logger, reg prometheus.Registerer) *exporter {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	spans := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "llmguard_tracing_spans_total",
		Help: "Spans, by outcome: exported, or failed (lost).",
	}, []string{"outcome"})
	for _, outcome := range []string{"exported", "failed"} {
		spans.WithLabelValues(outcome)
	}
	if reg != nil {
		reg.MustRegister(spans)
	}
	return &exporter{SpanExporter: out, log: log, spans: spans}
}

// ExportSpans exports a batch. It always returns nil, because the SDK would write errors about
// lost spans to standard error.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	lost := lostSpans(err, len(spans))
	e.spans.WithLabelValues("failed").Add(float64(lost))
	e.spans.WithLabelValues("exported").Add(float64(len(spans) - lost))
	if err != nil {
		if !e.away.Swap(true) {
			e.log.WarnContext(ctx, "spans not exported, calls continue", "err", err)
		}
		return nil
	}
	if e.away.Swap(false) {
		e.log.InfoContext(ctx, "span export restored")
	}
	return nil
}

// lostSpans returns how many spans of a batch were lost: all, unless the collector reports how
// many it rejected.
func lostSpans(err error, batch int) int {
	if rejected, ok := errors.AsType[*rejectedError](err); ok {
		return int(min(rejected.spans, int64(batch)))
	}
	if err != nil {
		return batch
	}
	return 0
}
