package proxy

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/llmguard/llmguard/guard"
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

// latency is the time of calls by its part.
type latency struct {
	own, redis, provider prometheus.Observer
}

func newLatency(reg prometheus.Registerer) *latency {
	parts := promauto.With(reg).NewHistogramVec(prometheus.HistogramOpts{
		Name: "llmguard_proxy_call_seconds",
		Help: "Time of live calls, by part: llmguard (this process), redis (waiting for decisions), provider (from sending " +
			"the request to the last byte of the answer; 0 is not counted). Reading from the caller and writing to it is " +
			"in none. Calls that waited in the queue, and refused ones, are not counted.",
		Buckets: []float64{
			.00005, .0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300,
		},
	}, []string{"part"})
	return &latency{
		own: parts.WithLabelValues("llmguard"), redis: parts.WithLabelValues("redis"),
		provider: parts.WithLabelValues("provider"),
	}
}

// measure counts the parts of a call's time.
func (x *request) measure(took time.Duration) {
	if x.call == nil || x.job != "" {
		return
	}
	waits := x.call.Latency()
	if waits.Provider == 0 && x.call.Result.Outcome != guard.Cached { // nothing was sent
		return
	}
	m, redis := x.server.metrics.latency, x.redis+waits.Redis
	m.redis.Observe(redis.Seconds())
	if waits.Provider > 0 {
		m.provider.Observe(waits.Provider.Seconds())
	}
	m.own.Observe(max(took-x.received-redis-waits.Provider-waits.Caller, 0).Seconds())
}

// waitedForRedis counts the time since a request for Redis began that is not part of the call.
func (x *request) waitedForRedis(began time.Time) { x.redis += time.Since(began) }

func (x *request) countAddress(ctx context.Context) error {
	defer x.waitedForRedis(time.Now())
	return x.within(x.server.guard.Requests.FromAddress(ctx, x.arrival, x.ip))
}

func (x *request) countCaller(ctx context.Context) error {
	defer x.waitedForRedis(time.Now())
	return x.within(x.server.guard.Requests.FromCaller(ctx, x.arrival, x.caller))
}

// countFree counts a call or hold that costs nothing like a request of a route that never costs money: in its key's
// rate, and in the limits on requests that change something.
func (x *request) countFree(ctx context.Context) error {
	if x.plan.Max.Cost > 0 {
		return nil
	}
	done, err := x.server.reads.begin(x.caller.Org.ID, x.caller.Key, writesOne, time.Now())
	if err != nil {
		return err
	}
	done() // it may take long without costing anything
	defer x.waitedForRedis(time.Now())
	a := x.arrival
	a.Class, a.Counted = guard.Writes, true
	if err := x.within(x.server.guard.Requests.FromAddress(ctx, a, x.ip)); err != nil {
		return err
	}
	return x.within(x.server.guard.Requests.FromCaller(ctx, a, x.caller))
}

func (x *request) label(ctx context.Context, in guard.LabelPlaces) (err error) {
	defer x.waitedForRedis(time.Now())
	x.caller, err = x.server.guard.Plans.Label(ctx, x.caller, in)
	return err
}
