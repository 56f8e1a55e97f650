package proxy

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/llmguard/llmguard/internal/wire"
)

// Routes that cost no money cost Redis time, and some of them a request to a provider
// with the deployment's credential. What one key, and all keys of an org, may use in each
// process is far above what a dashboard or a poller needs, and far below what would delay
// holds.
type readBounds struct {
	what      string  // that there are too many of
	perSecond float64 // in units of route.reads and route.writes
	burst     int
	atOnce    int
}

var (
	storeReads    = readBounds{"requests for lists and records", 100, 500, 16}
	upstreamReads = readBounds{"requests about stored responses", 10, 50, 8}
)

// orgReads is how many times as much as one key all keys of an org may use.
const orgReads = 10

// Weights of routes: one record, a change of one, a page of a list, or a look at all
// limits or days.
const (
	readsOne  = 1
	writesOne = 2
	readsPage = 4
	readsAll  = 8 // two at once
)

// readsKept is how many keys are known before those that rest are forgotten.
const readsKept = 10_000

// reads bounds what each key and each org reads. It is safe for concurrent use.
type reads struct {
	bounds readBounds

	mu   sync.Mutex
	keys map[string]*reader // by "org key"; the org's own by "org"
}

type reader struct {
	rate  *rate.Limiter
	burst int
	open  int // units under way
	most  int
}

func newReads(b readBounds) *reads { return &reads{bounds: b, keys: map[string]*reader{}} }

// begin lets a key read so many units until the returned function is called, which may
// be called twice; the error says when to come back.
func (r *reads) begin(org, key string, units int, now time.Time) (func(), error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	both := r.of(org, key, now)
	for _, who := range both {
		if who.open+units > who.most {
			return nil, r.tooMany(time.Second)
		}
	}
	ofKey, ofOrg := both[0].rate.ReserveN(now, units), both[1].rate.ReserveN(now, units)
	if wait := max(ofKey.DelayFrom(now), ofOrg.DelayFrom(now)); wait > 0 {
		ofKey.CancelAt(now)
		ofOrg.CancelAt(now)
		return nil, r.tooMany(wait)
	}
	for _, who := range both {
		who.open += units
	}
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, who := range both {
			who.open -= units
		}
	}), nil
}

// spend charges a key with units of which only the answer tells.
func (r *reads) spend(org, key string, units int, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, who := range r.of(org, key, now) {
		who.rate.ReserveN(now, min(units, who.burst))
	}
}

func (r *reads) tooMany(wait time.Duration) error {
	return wire.RateLimited(fmt.Sprintf(
		"Too many %s with this API key or in this organization: at most %d in parallel and %.0f a second per key",
		r.bounds.what, r.bounds.atOnce, r.bounds.perSecond), wait)
}

// of returns the reader of a key and that of its org.
func (r *reads) of(org, key string, now time.Time) [2]*reader {
	ofKey := org + " " + key
	if len(r.keys) >= readsKept && (r.keys[ofKey] == nil || r.keys[org] == nil) {
		for id, other := range r.keys {
			if other.open == 0 && other.rate.TokensAt(now) >= float64(other.burst) {
				delete(r.keys, id)
			}
		}
	}
	return [2]*reader{r.one(ofKey, 1), r.one(org, orgReads)}
}

func (r *reads) one(id string, times int) *reader {
	if r.keys[id] == nil {
		b := r.bounds
		burst := b.burst * times
		limit := rate.NewLimiter(rate.Limit(b.perSecond*float64(times)), burst)
		r.keys[id] = &reader{rate: limit, burst: burst, most: b.atOnce * times}
	}
	return r.keys[id]
}
