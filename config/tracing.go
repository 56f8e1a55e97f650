package config

// Tracing is the export of spans of calls by OTLP over HTTP, if Endpoint or the environment names a collector.
// Standard OTEL_ variables apply to omitted settings.
type Tracing struct {
	// Endpoint is the collector: http://otel-collector:4318. /v1/traces is added if it has no
	// path.
	Endpoint string `yaml:"endpoint" kind:"collector"`
	// SampleRatio is the part of calls that are traced, unless a traceparent header decides. Default: all.
	SampleRatio Percent `yaml:"sample_ratio"`
	// Headers are sent with every export.
	Headers map[string]Secret `yaml:"headers"`
}

// checkTracing checks the headers of exports.
func checkTracing(m *mistakes, t Tracing) {
	for name := range t.Headers {
		if !headerName.MatchString(name) {
			m.failAt(join("tracing.headers", name), "%s is not a header name", quote(name))
		}
	}
}
