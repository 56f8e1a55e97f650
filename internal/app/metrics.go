package app

import (
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/tracing"
)

// version is stamped by release builds.
var version = ""

// Version is the release, or what the Go toolchain knows of the tree.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// commit is that of the tree this was built from, empty when unknown.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// registerBuild reports which build runs: llmguard_build_info is always 1.
func registerBuild(reg prometheus.Registerer) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "llmguard_build_info", Help: "1, with the version, the commit and the Go version of this process.",
		ConstLabels: prometheus.Labels{"version": Version(), "commit": commit(), "go": runtime.Version()},
	})
	g.Set(1)
	reg.MustRegister(g)
}

// openTracer returns what traces calls; nil when nothing does.
func openTracer(t config.Tracing, log *slog.Logger, reg prometheus.Registerer) (*tracing.Tracer, error) {
	if !traces(t, os.Getenv) {
		return nil, nil
	}
	o := tracing.Options{
		Endpoint: t.Endpoint, SampleRatio: int(t.SampleRatio), Headers: map[string]string{}, Log: log,
		Metrics: reg,
	}
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
