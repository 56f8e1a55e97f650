package proxy

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	requests     *prometheus.CounterVec
	seconds      *prometheus.HistogramVec
	waiting      prometheus.Gauge
	again        *prometheus.CounterVec
	kept         prometheus.Counter
	authFailures prometheus.Counter
	latency      *latency

	mu      sync.RWMutex
	answers map[answerKey]*series
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		answers: map[answerKey]*series{}, latency: newLatency(reg),
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_proxy_requests_total",
			Help: "Requests answered, by route and HTTP status (499: the caller disconnected).",
		}, []string{"route", "status"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "llmguard_proxy_request_seconds",
			Help:    "Time from the request's headers to the last byte of the response, including time in the queue.",
			Buckets: []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"route"}),
		waiting: f.NewGauge(prometheus.GaugeOpts{
			Name: "llmguard_proxy_waiting_callers", Help: "Connected callers whose call is waiting in the queue or running " +
				"from it.",
		}),
		again: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_proxy_repeated_calls_total",
			Help: "Repeated requests, by outcome: rejoined the job of the first call, or replayed its answer.",
		}, []string{"outcome"}),
		kept: f.NewCounter(prometheus.CounterOpts{
			Name: "llmguard_proxy_kept_places_total",
			Help: "Refusals that reserved a place in the queue, or a running job, for the caller's retry.",
		}),
		authFailures: f.NewCounter(prometheus.CounterOpts{
			Name: "llmguard_proxy_auth_failures_total", Help: "Requests with an unknown, expired or disabled key.",
		}),
	}
}

// answered counts one request. There are few series, and each is looked up once.
func (m *metrics) answered(route string, status int, took time.Duration) {
	key := answerKey{route, status}
	m.mu.RLock()
	s := m.answers[key]
	m.mu.RUnlock()
	if s == nil {
		s = &series{m.requests.WithLabelValues(route, strconv.Itoa(status)), m.seconds.WithLabelValues(route)}
		m.mu.Lock()
		m.answers[key] = s
		m.mu.Unlock()
	}
	s.requests.Inc()
	s.seconds.Observe(took.Seconds())
}

type answerKey struct {
	route  string
	status int
}

type series struct {
	requests prometheus.Counter
	seconds  prometheus.Observer
}
