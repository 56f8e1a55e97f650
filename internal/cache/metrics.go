package cache

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/llmguard/llmguard/pricing"
)

// Outcome is what became of a request or of its answer.
type Outcome string

// The outcomes. A request is a Hit, a Miss or Skipped; the answer of a Miss may then be Stored,
// or not: Full or Failed. Evicted is an earlier answer.
const (
	Hit     Outcome = "hit"     // answered from the cache
	Miss    Outcome = "miss"    // there was no answer that is new enough
	Skipped Outcome = "skipped" // its answer may not be reused
	Stored  Outcome = "stored"
	Full    Outcome = "full"    // too large, or no room
	Failed  Outcome = "failed"  // Redis or files.store did not answer, when reading or storing
	Evicted Outcome = "evicted" // removed to make room for a newer one
)

type metrics struct {
	requests *prometheus.CounterVec
	saved    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "llmguard_cache_requests_total",
			Help: "Requests that may use the response cache, by outcome: hit, miss, skipped (the answer may not be reused). " +
				"And answers of misses: stored, full (too large, or no room), failed (Redis or files.store did not answer). " +
				"And stored answers that were removed to make room: evicted.",
		}, []string{"outcome"}),
		saved: f.NewCounter(prometheus.CounterOpts{
			Name: "llmguard_cache_saved_usd_total",
			Help: "Cost of the original calls, in USD, that answers from the response cache were not charged.",
		}),
	}
	for _, o := range []Outcome{Hit, Miss, Skipped, Stored, Full, Failed, Evicted} { // start at zero
		m.requests.WithLabelValues(string(o))
	}
	return m
}

func (m *metrics) evicted(n int) { m.requests.WithLabelValues(string(Evicted)).Add(float64(n)) }

// Note counts an outcome.
func (s *Store) Note(o Outcome) { s.metrics.requests.WithLabelValues(string(o)).Inc() }

// Saved counts what an answer from the cache cost less than the original.
func (s *Store) Saved(n pricing.Nano) { s.metrics.saved.Add(n.Float()) } // a metric, not the ledger
