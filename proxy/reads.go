package proxy

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/llmguard/llmguard/wire"
)

// Routes that cost no money cost Redis time. What one key may read in each process is
// far above what a dashboard or a poller needs, and far below what would delay holds.
const (
	readsPerSecond = 100 // in units of route.reads
	readsBurst     = 500
	readsAtOnce    = 16
)

// Weights of routes: one record, a page of a list, or a look at all limits or days.
const (
	readsOne  = 1
	readsPage = 4
	readsAll  = 8 // two at once
)

// readsKept is how many keys are known before those that rest are forgotten.
const readsKept = 10_000

// reads bounds what each key reads. It is safe for concurrent use.
type reads struct {
	mu   sync.Mutex
	keys map[string]*reader
}

type reader struct {
	rate *rate.Limiter
	open int // units under way
}

func newReads() *reads { return &reads{keys: map[string]*reader{}} }

// begin lets a key read so many units until the returned function is called; the error
// says when to come back.
func (r *reads) begin(org, key string, units int, now time.Time) (func(), error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	who := r.of(org+" "+key, now)
	if who.open+units > readsAtOnce {
		return nil, tooManyReads(time.Second)
	}
	if wait := who.rate.ReserveN(now, units); wait.DelayFrom(now) > 0 {
		defer wait.CancelAt(now)
		return nil, tooManyReads(wait.DelayFrom(now))
	}
	who.open += units
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		who.open -= units
	}, nil
}

func tooManyReads(wait time.Duration) error {
	return wire.RateLimited(fmt.Sprintf("Too many requests for lists and records with this API key: at most %d in parallel and %d a second", readsAtOnce, readsPerSecond), wait)
}

func (r *reads) of(key string, now time.Time) *reader {
	who := r.keys[key]
	if who != nil {
		return who
	}
	if len(r.keys) >= readsKept {
		for id, other := range r.keys {
			if other.open == 0 && other.rate.TokensAt(now) >= readsBurst {
				delete(r.keys, id)
			}
		}
	}
	who = &reader{rate: rate.NewLimiter(readsPerSecond, readsBurst)}
	r.keys[key] = who
	return who
}
