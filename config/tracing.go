package config

import (
	"net/url"
	"time"
)

// Tracing is the export of spans of calls, by OTLP over HTTP. It is off unless Endpoint,
// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT names a collector;
// OTEL_SDK_DISABLED=true or OTEL_TRACES_EXPORTER=none turns it off. Other standard OTEL_
// variables apply to omitted settings. Spans have ids, models, counts, costs and outcomes, but
// no prompts, answers or keys.
type Tracing struct {
	// Endpoint is the collector: http://otel-collector:4318. /v1/traces is added if it has no
	// path.
	Endpoint string `yaml:"endpoint"`
	// SampleRatio is the part of calls that are traced, if their caller has not decided with a
	// traceparent header: 10%. Default: all.
	SampleRatio Percent `yaml:"sample_ratio"`
	// Headers are sent with every export, such as a tenant's token.
	Headers map[string]Secret `yaml:"headers"`
	// Metrics exports the metrics of /metrics as well. They can always be scraped.
	Metrics MetricsExport `yaml:"metrics"`
}

// MetricsExport is the export of metrics, by OTLP over HTTP, to collectors that do not scrape. It is
// off unless Interval is set; OTEL_SDK_DISABLED=true or OTEL_METRICS_EXPORTER=none turns it off.
// The headers are those of spans.
type MetricsExport struct {
	// Interval is the time between two exports: 60s. Default: no export.
	Interval time.Duration `yaml:"interval" min:"0"`
	// Endpoint is the collector: http://otel-collector:4318. /v1/metrics is added if it has no path.
	// Default: the host of tracing.endpoint.
	Endpoint string `yaml:"endpoint"`
}

// Collector returns where metrics are sent; "" leaves it to the environment. ok is false if it
// cannot be derived from the endpoint of spans.
func (t Tracing) Collector() (endpoint string, ok bool) {
	u, err := url.Parse(t.Endpoint)
	switch {
	case t.Metrics.Endpoint != "" || t.Endpoint == "" || err != nil:
		return t.Metrics.Endpoint, true
	case u.Path != "" && u.Path != "/" && u.Path != "/v1/traces":
		return "", false
	}
	u.Path = ""
	return u.String(), true
}

// checkTracing checks the destination of spans and metrics.
func checkTracing(m *mistakes, t Tracing) {
	checkCollector(m, "tracing.endpoint", t.Endpoint)
	checkCollector(m, "tracing.metrics.endpoint", t.Metrics.Endpoint)
	_, derived := t.Collector()
	switch {
	case t.Metrics.Interval == 0 && t.Metrics.Endpoint != "":
		m.failAt("tracing.metrics.endpoint", "needs tracing.metrics.interval, such as 60s")
	case t.Metrics.Interval > 0 && t.Metrics.Interval < time.Second:
		m.failAt("tracing.metrics.interval", "must be at least 1s")
	case t.Metrics.Interval > 0 && !derived:
		m.failAt("tracing.metrics.interval", "needs tracing.metrics.endpoint, because tracing.endpoint has a path of its own")
	}
	for name := range t.Headers {
		if !headerName.MatchString(name) {
			m.failAt(join("tracing.headers", name), "%s is not a header name", quote(name))
		}
	}
}

// checkCollector checks the URL of a collector.
func checkCollector(m *mistakes, field, endpoint string) {
	u, err := url.Parse(endpoint)
	switch {
	case endpoint == "":
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		m.failAt(field, "expected a URL such as http://otel-collector:4318, got %s", mask(quote(endpoint)))
	case u.User != nil:
		m.failAt(field, "contains a user or password; use headers")
	case u.Port() == "4317":
		m.failAt(field,
			"port 4317 is for OTLP over gRPC; llmguard exports over HTTP, to port 4318 of the same collector")
	}
}
