package config

import "net/url"

// Tracing says where the spans of calls go, by OTLP over HTTP. It is off unless
// Endpoint, or OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT in
// the environment, names a collector; OTEL_SDK_DISABLED=true or
// OTEL_TRACES_EXPORTER=none turns it off. What is left out here is as the other
// standard OTEL_ variables say: service name and resource, sampler, headers,
// timeouts, certificates, batching. Spans hold ids, models, counts, costs and
// outcomes; no prompt, no answer and no key.
type Tracing struct {
	// Endpoint is the collector: http://otel-collector:4318. /v1/traces is added
	// where it has no path.
	Endpoint string `yaml:"endpoint"`
	// SampleRatio is the part of calls that are traced, of those whose caller has
	// not decided it by a traceparent header: 10%. Left out: all.
	SampleRatio Percent `yaml:"sample_ratio"`
	// Headers go with every export, such as a tenant's token.
	Headers map[string]Secret `yaml:"headers"`
}

// checkTracing checks where spans go.
func checkTracing(m *mistakes, t Tracing) {
	u, err := url.Parse(t.Endpoint)
	switch {
	case t.Endpoint == "":
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		m.failAt("tracing.endpoint", "expected a URL such as http://otel-collector:4318, got %s", mask(quote(t.Endpoint)))
	case u.User != nil:
		m.failAt("tracing.endpoint", "has a user or password in it; use headers")
	case u.Port() == "4317":
		m.failAt("tracing.endpoint",
			"port 4317 is that of OTLP over gRPC; spans go by HTTP, to port 4318 of the same collector")
	}
	for name := range t.Headers {
		if !headerName.MatchString(name) {
			m.failAt(join("tracing.headers", name), "%s is not a header's name", quote(name))
		}
	}
}
