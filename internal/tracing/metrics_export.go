package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/resource"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
)

// lastExport bounds the export at shutdown.
const lastExport = 3 * time.Second

// MetricExport sends the metrics of a registry to a collector at an interval. A nil MetricExport
// does nothing. It is safe for concurrent use.
type MetricExport struct {
	client   *client
	source   prometheus.Gatherer
	about    *resource.Resource
	version  string
	interval time.Duration
	begin    time.Time // of cumulative values
	log      *slog.Logger
	exports  *prometheus.CounterVec

	closing context.Context
	close   context.CancelFunc
	mu      sync.Mutex // held during an export
	away    bool
}

// NewMetricExport returns an export of what source gathers. It opens no connection: if the
// collector is unavailable, the values are sent with the next export.
func NewMetricExport(o Options, source prometheus.Gatherer, interval time.Duration) (*MetricExport, error) {
	closing, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // until Close
	about, err := aboutProcess(closing, o.Version)
	if err != nil {
		cancel()
		return nil, err
	}
	to, err := newTarget(metrics, o)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("tracing.metrics: %w", err)
	}
	e := &MetricExport{
		client: newClient(to), source: source, about: about, version: o.Version, interval: interval,
		begin: time.Now(), log: o.Log, closing: closing, close: cancel,
		exports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_tracing_metric_exports_total",
			Help: "Exports of all metrics by OTLP, by outcome: exported, or failed.",
		}, []string{"outcome"}),
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	for _, outcome := range []string{"exported", "failed"} {
		e.exports.WithLabelValues(outcome)
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(e.exports)
	}
	return e, nil
}

// Run exports at the interval until ctx ends or Close is called. It returns nil.
func (e *MetricExport) Run(ctx context.Context) error {
	if e == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.closing, cancel)()
	tick := time.NewTicker(e.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			e.bounded(ctx, e.interval)
		}
	}
}

// Close exports the final values, as far as ctx allows, and for at most 3 seconds.
func (e *MetricExport) Close(ctx context.Context) {
	if e == nil {
		return
	}
	e.close()
	e.bounded(ctx, lastExport)
	_ = e.client.Stop(ctx)
}

func (e *MetricExport) bounded(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	e.export(ctx)
}

// export sends the current values once. It logs once when the collector becomes unavailable and
// when it is back.
func (e *MetricExport) export(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	families, err := e.source.Gather()
	if err != nil {
		e.log.WarnContext(ctx, "some metrics not gathered", "err", err)
	}
	points := pointsOf(families, e.begin, time.Now())
	err = e.client.upload(ctx, &metricspb.MetricsData{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource: resourceOf(e.about), SchemaUrl: e.about.SchemaURL(),
		ScopeMetrics: []*metricspb.ScopeMetrics{{Scope: scopeOf(e.version), Metrics: points}},
	}}})
	switch {
	case err != nil:
		e.exports.WithLabelValues("failed").Inc()
		if !e.away {
			e.log.WarnContext(ctx, "metrics not exported, calls continue", "err", err)
		}
	default:
		e.exports.WithLabelValues("exported").Inc()
		if e.away {
			e.log.InfoContext(ctx, "metric export restored")
		}
	}
	e.away = err != nil
}
