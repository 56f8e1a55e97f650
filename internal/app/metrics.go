package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/tracing"
)

// version is set by release builds.
var version = ""

// Version returns the release, or the version that the Go toolchain recorded.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// commit returns the commit this was built from, empty if unknown.
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

// registerBuild reports which build is running: llmguard_build_info is always 1.
func registerBuild(reg prometheus.Registerer) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "llmguard_build_info", Help: "1, with the version, the commit and the Go version of this process.",
		ConstLabels: prometheus.Labels{"version": Version(), "commit": commit(), "go": runtime.Version()},
	})
	g.Set(1)
	reg.MustRegister(g)
}

// registerScraped registers the metrics that are read from Redis or the policy at scrape time, until
// ctx ends.
func (a *App) registerScraped(ctx context.Context) error {
	caps := func() []budget.Cap { return a.guard.Policy().Caps }
	return errors.Join(
		budget.RegisterCaps(ctx, a.registry, a.budget, caps),
		budget.RegisterOrgs(ctx, a.registry, a.budget, a.orgLimits),
		guard.RegisterBounds(a.registry, a.ids.bounds),
		redisconn.Register(ctx, a.registry, a.rdb),
	)
}

// orgLimits returns the current limits of each org.
func (a *App) orgLimits() map[string][]budget.Limit {
	orgs := a.guard.Policy().Orgs
	out := make(map[string][]budget.Limit, len(orgs))
	for id, o := range orgs {
		out[id] = o.Limits
	}
	return out
}

// openTracer returns the tracer of calls; nil if tracing is off.
func openTracer(t config.Tracing, log *slog.Logger, reg prometheus.Registerer) (*tracing.Tracer, error) {
	if !traces(t, os.Getenv) {
		return nil, nil
	}
	headers := map[string]string{}
	for name, value := range t.Headers {
		headers[name] = value.Reveal()
	}
	return tracing.New(tracing.Options{
		Endpoint: t.Endpoint, Headers: headers, SampleRatio: int(t.SampleRatio), Version: Version(), Log: log, Metrics: reg,
	})
}

// traces reports whether calls are traced: an endpoint is set, and tracing is not disabled
// by the environment.
func traces(t config.Tracing, env func(string) string) bool {
	if env("OTEL_SDK_DISABLED") == "true" || env("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return t.Endpoint != "" || env("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}
