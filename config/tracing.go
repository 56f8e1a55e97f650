package config

// Tracing is the export of spans of calls, by OTLP over HTTP. It is off unless Endpoint,
// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT names a collector;
// OTEL_SDK_DISABLED=true or OTEL_TRACES_EXPORTER=none turns it off. Other standard OTEL_
// variables apply to omitted settings. Spans have ids, models, counts, costs and outcomes, but
// no prompts, answers or keys.
type Tracing struct {
	// Endpoint is the collector: http://otel-collector:4318. /v1/traces is added if it has no
	// path.
	Endpoint string `yaml:"endpoint" kind:"collector"`
	// SampleRatio is the part of calls that are traced, if their caller has not decided with a
	// traceparent header: 10%. Default: all.
	SampleRatio Percent `yaml:"sample_ratio"`
	// Headers are sent with every export, such as a tenant's token.
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
