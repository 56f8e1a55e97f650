package tracing

import (
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const cumulative = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE

// pointsOf converts metrics under their own names. Cumulative values count from when their metric
// was created, or from begin.
func pointsOf(families []*dto.MetricFamily, begin, now time.Time) []*metricspb.Metric {
	out := make([]*metricspb.Metric, 0, len(families))
	for _, f := range families {
		m := &metricspb.Metric{Name: f.GetName(), Description: f.GetHelp(), Unit: f.GetUnit()}
		at := moments{begin: uint64(begin.UnixNano()), now: uint64(now.UnixNano())}
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			m.Data = &metricspb.Metric_Sum{Sum: &metricspb.Sum{
				AggregationTemporality: cumulative, IsMonotonic: true, DataPoints: each(f, at.counter),
			}}
		case dto.MetricType_HISTOGRAM:
			m.Data = &metricspb.Metric_Histogram{Histogram: &metricspb.Histogram{
				AggregationTemporality: cumulative, DataPoints: each(f, at.histogram),
			}}
		case dto.MetricType_SUMMARY:
			m.Data = &metricspb.Metric_Summary{Summary: &metricspb.Summary{DataPoints: each(f, at.summary)}}
		default:
			m.Data = &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: each(f, at.gauge)}}
		}
		out = append(out, m)
	}
	return out
}

func each[P any](f *dto.MetricFamily, convert func(*dto.Metric) P) []P {
	out := make([]P, 0, len(f.GetMetric()))
	for _, m := range f.GetMetric() {
		out = append(out, convert(m))
	}
	return out
}

// moments are the times of an export in nanoseconds.
type moments struct{ begin, now uint64 }

// from returns the start of a cumulative value.
func (t moments) from(created *timestamppb.Timestamp) uint64 {
	if created == nil {
		return t.begin
	}
	return uint64(created.AsTime().UnixNano())
}

func (t moments) counter(m *dto.Metric) *metricspb.NumberDataPoint {
	c := m.GetCounter()
	return &metricspb.NumberDataPoint{
		Attributes: labelsOf(m), TimeUnixNano: t.now, Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: c.GetValue()},
		StartTimeUnixNano: t.from(c.GetCreatedTimestamp()),
	}
}

func (t moments) gauge(m *dto.Metric) *metricspb.NumberDataPoint {
	value := m.GetGauge().GetValue()
	if m.GetUntyped() != nil {
		value = m.GetUntyped().GetValue()
	}
	return &metricspb.NumberDataPoint{
		Attributes: labelsOf(m), TimeUnixNano: t.now, Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: value},
	}
}

// histogram converts cumulative buckets to the counts of each, of which the last has no bound.
func (t moments) histogram(m *dto.Metric) *metricspb.HistogramDataPoint {
	h := m.GetHistogram()
	p := &metricspb.HistogramDataPoint{
		Attributes: labelsOf(m), TimeUnixNano: t.now, Count: h.GetSampleCount(), Sum: h.SampleSum,
		StartTimeUnixNano: t.from(h.GetCreatedTimestamp()),
	}
	below := uint64(0)
	for _, b := range h.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			break
		}
		p.ExplicitBounds = append(p.ExplicitBounds, b.GetUpperBound())
		p.BucketCounts = append(p.BucketCounts, b.GetCumulativeCount()-below)
		below = b.GetCumulativeCount()
	}
	p.BucketCounts = append(p.BucketCounts, h.GetSampleCount()-below)
	return p
}

func (t moments) summary(m *dto.Metric) *metricspb.SummaryDataPoint {
	s := m.GetSummary()
	p := &metricspb.SummaryDataPoint{
		Attributes: labelsOf(m), TimeUnixNano: t.now, Count: s.GetSampleCount(), Sum: s.GetSampleSum(),
		StartTimeUnixNano: t.from(s.GetCreatedTimestamp()),
	}
	for _, q := range s.GetQuantile() {
		p.QuantileValues = append(p.QuantileValues, &metricspb.SummaryDataPoint_ValueAtQuantile{
			Quantile: q.GetQuantile(), Value: q.GetValue(),
		})
	}
	return p
}

func labelsOf(m *dto.Metric) []*commonpb.KeyValue {
	out := make([]*commonpb.KeyValue, 0, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		out = append(out, pair(l.GetName(), l.GetValue()))
	}
	return out
}

func pair(name, value string) *commonpb.KeyValue {
	text := &commonpb.AnyValue_StringValue{StringValue: value}
	return &commonpb.KeyValue{Key: name, Value: &commonpb.AnyValue{Value: text}}
}

// resourceOf converts the attributes of the process, which are texts except the process's id.
func resourceOf(about *resource.Resource) *resourcepb.Resource {
	out := &resourcepb.Resource{}
	for _, kv := range about.Attributes() {
		p := pair(string(kv.Key), kv.Value.String())
		if kv.Value.Type() == attribute.INT64 {
			p.Value.Value = &commonpb.AnyValue_IntValue{IntValue: kv.Value.AsInt64()}
		}
		out.Attributes = append(out.Attributes, p)
	}
	return out
}

func scopeOf(version string) *commonpb.InstrumentationScope {
	return &commonpb.InstrumentationScope{Name: scope, Version: version}
}
