package app

import (
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/tracing"
)

// openTracer returns what traces calls; nil when nothing does.
func openTracer(t config.Tracing, log *slog.Logger, reg prometheus.Registerer) (*tracing.Tracer, error) {
	if !traces(t, os.Getenv) {
		return nil, nil
	}
	o := tracing.Options{Endpoint: t.Endpoint, SampleRatio: int(t.SampleRatio), Headers: map[string]string{}, Log: log, Metrics: reg}
	for name, value := range t.Headers {
		o.Headers[name] = value.Reveal()
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		o.Version = build.Main.Version
	}
	return tracing.New(o)
}

// traces reports whether calls are traced: somebody says where the spans go, and
// nobody says that they do not.
func traces(t config.Tracing, env func(string) string) bool {
	if env("OTEL_SDK_DISABLED") == "true" || env("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return t.Endpoint != "" || env("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}
