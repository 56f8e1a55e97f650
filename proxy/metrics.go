package proxy

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	requests     *prometheus.CounterVec
	seconds      *prometheus.HistogramVec
	waiting      prometheus.Gauge
	authFailures prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_proxy_requests_total", Help: "Requests answered, by route and HTTP status (499: the caller left).",
		}, []string{"route", "status"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "llmguard_proxy_request_seconds", Help: "Time from the request's head to the last byte of the answer, waiting included.",
			Buckets: []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"route"}),
		waiting: f.NewGauge(prometheus.GaugeOpts{
			Name: "llmguard_proxy_waiting_callers", Help: "Connected callers whose call waits in the queue or runs from it.",
		}),
		authFailures: f.NewCounter(prometheus.CounterOpts{
			Name: "llmguard_proxy_auth_failures_total", Help: "Requests with an unknown, expired or disabled key.",
		}),
	}
}

func (m *metrics) answered(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}
