package tracing

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/llmguard/llmguard/internal/redistest"
)

// metricsCollector returns the endpoint of a collector, and the exports that it receives.
func metricsCollector(t *testing.T) (string, chan *metricspb.ResourceMetrics) {
	t.Helper()
	exports := make(chan *metricspb.ResourceMetrics, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var got metricspb.MetricsData
		if err == nil {
			err = proto.Unmarshal(body, &got)
		}
		if err != nil || r.URL.Path != "/v1/metrics" || len(got.GetResourceMetrics()) != 1 {
			t.Errorf("got %s with %v and %v", r.URL, &got, err)
			return
		}
		exports <- got.GetResourceMetrics()[0]
	}))
	t.Cleanup(srv.Close)
	return srv.URL, exports
}

// TestMetricExport: a collector receives what the registry has, at the interval and at the end.
func TestMetricExport(t *testing.T) {
	endpoint, exports := metricsCollector(t)
	reg := prometheus.NewRegistry()
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "calls_total", Help: "Calls."}, []string{"pool"})
	open := prometheus.NewGauge(prometheus.GaugeOpts{Name: "open", Help: "Open calls."})
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took_seconds", Help: "Time.", Buckets: []float64{.001, 1}})
	reg.MustRegister(calls, open, took)
	calls.WithLabelValues("p4o").Add(3)
	open.Set(-2)
	for _, s := range []float64{.0005, .5, .5, 7} {
		took.Observe(s)
	}
	e, err := NewMetricExport(Options{Endpoint: endpoint, Version: "v1", Metrics: reg}, reg, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- e.Run(t.Context()) }()
	checkMetrics(t, redistest.Came(t, exports), 3)
	calls.WithLabelValues("p4o").Inc()
	e.Close(t.Context())
	if err := redistest.Came(t, done); err != nil {
		t.Error(err)
	}
	var last *metricspb.ResourceMetrics
	for len(exports) > 0 {
		last = redistest.Came(t, exports)
	}
	checkMetrics(t, last, 4)
}

func checkMetrics(t *testing.T, got *metricspb.ResourceMetrics, calls float64) {
	t.Helper()
	about := map[string]string{}
	for _, a := range got.GetResource().GetAttributes() {
		about[a.GetKey()] = a.GetValue().GetStringValue()
	}
	if about["service.name"] != "llmguard" || about["service.instance.id"] == "" || about["service.version"] != "v1" {
		t.Errorf("got the resource %v, want name, instance and version", about)
	}
	all := map[string]*metricspb.Metric{}
	for _, m := range got.GetScopeMetrics()[0].GetMetrics() {
		all[m.GetName()] = m
	}
	sum := all["calls_total"].GetSum()
	if !sum.GetIsMonotonic() || sum.GetAggregationTemporality() != cumulative || len(sum.GetDataPoints()) != 1 {
		t.Fatalf("got %v, want a cumulative monotonic sum", all["calls_total"])
	}
	p := sum.GetDataPoints()[0]
	if p.GetAsDouble() != calls || p.GetStartTimeUnixNano() == 0 || p.GetStartTimeUnixNano() > p.GetTimeUnixNano() {
		t.Errorf("got %v, want %v", p, calls)
	}
	if a := p.GetAttributes(); len(a) != 1 || a[0].GetKey() != "pool" || a[0].GetValue().GetStringValue() != "p4o" {
		t.Errorf("got the attributes %v, want the pool", a)
	}
	if open := all["open"].GetGauge().GetDataPoints(); len(open) != 1 || open[0].GetAsDouble() != -2 {
		t.Errorf("got %v, want -2", open)
	}
	h := all["took_seconds"].GetHistogram().GetDataPoints()[0]
	if !slices.Equal(h.GetExplicitBounds(), []float64{.001, 1}) || !slices.Equal(h.GetBucketCounts(), []uint64{1, 2, 1}) ||
		h.GetCount() != 4 || h.GetSum() != 8.0005 {
		t.Errorf("got %v, want the counts 1, 2, 1", h)
	}
}

// TestMetricExportFails: a collector that refuses is counted, and does not hold up the end.
func TestMetricExportFails(t *testing.T) {
	reg := prometheus.NewRegistry()
	e, err := NewMetricExport(Options{Endpoint: refusing(t), Log: slog.New(slog.DiscardHandler), Metrics: reg}, reg, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	e.Close(t.Context())
	if n := testutil.ToFloat64(e.exports.WithLabelValues("failed")); n != 1 {
		t.Errorf("got %v failures, want 1", n)
	}
	var none *MetricExport
	if err := none.Run(t.Context()); err != nil {
		t.Error(err)
	}
	none.Close(t.Context())
}
