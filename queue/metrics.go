package queue

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/internal/tasks"
)

// metrics holds the package's metrics. Label values come from the pools and from fixed sets
// in the scripts.
type metrics struct {
	puts     *prometheus.CounterVec   // pool, outcome
	acquires *prometheus.CounterVec   // pool, outcome
	ended    *prometheus.CounterVec   // pool, state
	reaped   *prometheus.CounterVec   // pool
	stale    *prometheus.CounterVec   // pool
	retries  *prometheus.CounterVec   // pool
	blobs    *prometheus.CounterVec   // what, outcome
	waited   *prometheus.HistogramVec // pool, class
	depth    *depthCollector
}

func newMetrics(reg prometheus.Registerer, q *Queue) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "llmguard_queue_" + name, Help: help}, labels)
	}
	m := &metrics{
		puts:     counter("puts_total", "Jobs submitted to the queue, by outcome.", "pool", "outcome"),
		acquires: counter("acquires_total", "Requests of workers for jobs, by outcome.", "pool", "outcome"),
		ended:    counter("jobs_ended_total", "Finished jobs, by final state.", "pool", "state"),
		reaped:   counter("claims_reaped_total", "Jobs returned to the queue because their worker stopped.", "pool"),
		stale: counter("stale_grants_total",
			"Quota grants that expired before the request could be sent, because this process is overloaded.", "pool"),
		retries: counter("job_retries_total",
			"Attempts that failed at the provider and will be repeated after a pause.", "pool"),
		blobs: counter("blobs_total",
			"Bodies and answers stored outside Redis, by outcome: written, failed (kept in Redis instead), lost.", "what",
			"outcome"),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "llmguard_queue_wait_seconds",
			Help:    "Time from submission to the start of an attempt.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600},
		}, []string{"pool", "class"}),
		depth: newDepthCollector(q),
	}
	if reg != nil {
		reg.MustRegister(m.puts, m.acquires, m.ended, m.reaped, m.stale, m.retries, m.blobs, m.waited, m.depth)
	}
	return m
}

// blob counts the writing of a blob by its outcome.
func (m *metrics) blob(name string, err error) {
	outcome := "written"
	if err != nil {
		outcome = "failed"
	}
	m.blobs.WithLabelValues(blobKind(name), outcome).Inc()
}

// scrapeIn makes scrapes use ctx. Before Run there is nothing to scrape.
func (m *metrics) scrapeIn(ctx context.Context) { m.depth.ctx.Store(&ctx) }

// depthCollector reads the depth of the pools from Redis at scrape time.
type depthCollector struct {
	q                                           *Queue
	ctx                                         atomic.Pointer[context.Context]
	waiting, waitingTokens, jobs, bytes, claims *prometheus.Desc
	parked, blocked, used, quota, pace, dead    *prometheus.Desc
	oldest, running, paused                     *prometheus.Desc
}

func newDepthCollector(q *Queue) *depthCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"pool"}, labels...), nil)
	}
	return &depthCollector{
		q:             q,
		waiting:       desc("llmguard_queue_waiting_jobs", "Waiting jobs.", "class"),
		waitingTokens: desc("llmguard_queue_waiting_tokens", "Tokens of waiting jobs.", "class"),
		jobs:          desc("llmguard_queue_open_jobs", "Unfinished jobs."),
		bytes:         desc("llmguard_queue_open_bytes", "Size of the bodies of unfinished jobs, in bytes."),
		claims:        desc("llmguard_queue_claimed_jobs", "Jobs claimed by workers."),
		running: desc("llmguard_queue_running_calls",
			"Calls in progress: live ones with a quota grant, and jobs claimed by workers.", "kind"),
		parked: desc("llmguard_queue_parked_subjects", "Orgs and flows paused by a limit."),
		paused: desc("llmguard_queue_paused", "1 while an operator pauses the pool's queue."),
		blocked: desc("llmguard_quota_blocked_seconds",
			"Remaining time for which the provider blocks the pool or one of its models."),
		used: desc("llmguard_quota_used", "Provider quota used in the last minute.", "limit"),
		quota: desc("llmguard_quota_limit",
			"Provider quota in force: the smaller of the configured and the learned one. Absent if there is none.", "limit"),
		pace: desc("llmguard_quota_pace_ratio",
			"Fraction of the configured rate currently used for pacing; below 1 after the provider refused calls."),
		dead:   desc("llmguard_queue_dead_letters", "Failed jobs that can be replayed."),
		oldest: desc("llmguard_queue_oldest_seconds", "Age of the oldest waiting job; 0 if none is waiting.", "class"),
	}
}

// Describe implements prometheus.Collector.
func (c *depthCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.waiting, c.waitingTokens, c.jobs, c.bytes, c.claims, c.parked, c.blocked,
		c.used, c.quota, c.pace, c.dead, c.oldest, c.running, c.paused,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It omits pools that cannot be read.
func (c *depthCollector) Collect(ch chan<- prometheus.Metric) {
	base := c.ctx.Load()
	if base == nil {
		return
	}
	ctx, cancel := context.WithTimeout(*base, 2*time.Second)
	defer cancel()
	for id := range c.q.settings.pools() {
		d, err := c.q.Depth(ctx, id)
		if err != nil {
			continue
		}
		gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, append([]string{id}, labels...)...)
		}
		for class := Interactive; class <= Batch; class++ {
			gauge(c.waiting, float64(d.Waiting[class]), class.String())
			gauge(c.waitingTokens, float64(d.WaitingTokens[class]), class.String())
		}
		gauge(c.jobs, float64(d.Jobs))
		gauge(c.bytes, float64(d.Bytes))
		gauge(c.claims, float64(d.Claims))
		gauge(c.running, float64(d.Live), "live")
		gauge(c.running, float64(d.Claims), "job")
		gauge(c.parked, float64(d.Parked))
		gauge(c.paused, map[bool]float64{true: 1}[d.Paused])
		gauge(c.blocked, d.Blocked.Seconds())
		for _, r := range d.Rates {
			gauge(c.used, float64(r.Used), r.Name)
			if r.Limit > 0 {
				gauge(c.quota, float64(r.Limit), r.Name)
			}
		}
		gauge(c.pace, d.Pace)
		gauge(c.dead, float64(d.Dead))
		put, err := c.q.Oldest(ctx, id)
		if err != nil {
			continue
		}
		for class := Interactive; class <= Batch; class++ {
			age := 0.0
			if !put[class].IsZero() {
				age = max(time.Since(put[class]).Seconds(), 0)
			}
			gauge(c.oldest, age, class.String())
		}
	}
}

// Depth is what a pool holds at an instant.
type Depth struct {
	// Waiting and WaitingTokens are by class. Jobs and Bytes are of all unfinished
	// jobs.
	Waiting, WaitingTokens [4]int64
	Jobs, Bytes            int64
	// Claims counts the jobs that workers hold, Live the calls that never were jobs and
	// have a quota grant. Calls on a local share, while Redis is unavailable, are not
	// included.
	Claims, Live, Parked int64
	// Blocked is how much longer the provider blocks the pool, or else its model BlockedModel.
	Blocked      time.Duration
	BlockedModel string
	// Rates are the pool's quotas of a minute. Pace is the fraction of them at which the pool is
	// paced, 0.1 to 1.
	Rates Rates
	Pace  float64
	// Dead counts the dead letters.
	Dead int64
	// Paused means that no job is started, see [Queue.SetPaused].
	Paused bool
}

// Running returns the number of jobs and live calls that are at the provider or about to
// be.
func (d Depth) Running() int64 { return d.Claims + d.Live }

// Rate is a quota of a sliding minute.
type Rate struct {
	Name  string `json:"name"`  // rpm, and tpm, or itpm and otpm
	Used  int64  `json:"used"`  // granted, as last booked
	Limit int64  `json:"limit"` // in force, configured or learned; 0 is none
}

// Share returns the used part of the quota; 0 if there is none.
func (r Rate) Share() float64 {
	if r.Limit == 0 {
		return 0
	}
	return float64(r.Used) / float64(r.Limit)
}

// Title returns what the rate counts, in words.
func (r Rate) Title() string {
	return map[string]string{"rpm": "Requests", "tpm": "Tokens", "itpm": "Input tokens", "otpm": "Output tokens"}[r.Name]
}

// Rates are the quotas of a pool: of requests, then of tokens, or of input and of output.
type Rates []Rate

// Fullest returns the one of which the largest part is used, which calls wait for first.
func (r Rates) Fullest() Rate {
	return slices.MaxFunc(r, func(a, b Rate) int { return cmp.Compare(a.Share(), b.Share()) })
}

// smaller returns the smaller of two quotas, where 0 means none.
func smaller(a, b int64) int64 {
	if a == 0 || (b > 0 && b < a) {
		return b
	}
	return a
}

// Depth returns what a pool holds.
func (q *Queue) Depth(ctx context.Context, poolID string) (Depth, error) {
	p, err := q.settings.pool(poolID)
	if err != nil {
		return Depth{}, err
	}
	reply, err := q.scripts.eval(ctx, "depth", depthScript, p.with(tasks.PausedKey(p.ID)))
	if err != nil {
		return Depth{}, err
	}
	w, err := words("depth", reply, 22)
	if err != nil {
		return Depth{}, err
	}
	var n [23]int64
	for i := range 22 {
		n[i+1], _ = strconv.ParseInt(w[i], 10, 64)
	}
	d := Depth{
		Jobs: n[7], Bytes: n[8], Claims: n[9], Parked: n[10],
		Blocked: time.Duration(n[11]) * time.Microsecond, Pace: float64(n[16]) / 1000, Dead: n[17], Live: n[18],
		Paused: n[20] == 1,
	}
	if model := time.Duration(n[19]) * time.Microsecond; d.Blocked == 0 && model > 0 {
		d.Blocked, d.BlockedModel = model, strings.Join(w[22:], " ")
	}
	tokens := Rate{"tpm", n[13], smaller(p.TPM, n[15])}
	d.Rates = Rates{{"rpm", n[12], smaller(p.RPM, n[14])}, tokens}
	if p.Split {
		d.Rates[1].Name = "itpm"
		d.Rates = append(d.Rates, Rate{"otpm", n[21], smaller(p.OTPM, n[22])})
	}
	copy(d.Waiting[1:], n[1:4])
	copy(d.WaitingTokens[1:], n[4:7])
	return d, nil
}
