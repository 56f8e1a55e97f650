package proxy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/quota"
)

// readBounds bound routes that cost no money: they cost Redis time, and some of them a request to a
// provider with the deployment's credential. The allowance of one key, and of all keys of an org,
// in each process is far above what a dashboard or a poller needs, and far below what would delay
// holds.
type readBounds struct {
	name      string  // in the headers that report the limit
	what      string  // for the message: what there are too many of
	perSecond float64 // in units of route.reads and route.writes
	burst     int
	atOnce    int
}

var (
	storeReads    = readBounds{"free-requests", "requests for lists and records", 100, 500, 16}
	upstreamReads = readBounds{"object-requests", "requests about stored responses", 10, 50, 8}
)

// orgReads is the allowance of all keys of an org, as a multiple of that of one key.
const orgReads = 10

// Weights of routes: one record, a change of one, a page of a list, or a read of all limits or
// days.
const (
	readsOne   = 1
	writesOne  = 2
	writesHold = 1 // in holdChanges
	readsPage  = 4
	readsAll   = 8 // two concurrently
)

// readsKept is the number of keys beyond which idle ones are forgotten.
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
	open  int // units in progress
	most  int
}

func newReads(b readBounds) *reads { return &reads{bounds: b, keys: map[string]*reader{}} }

// begin takes units for a key until the returned function is called, which may be called twice; the
// error says when to retry.
func (r *reads) begin(org, key string, units int, now time.Time) (func(), error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	both := r.of(org, key, now)
	for _, who := range both {
		if who.open+units > who.most {
			e := r.tooMany(time.Second)
			e.Limit = &wire.LimitState{
				Name: r.bounds.name + "-in-parallel", Unit: wire.UnitParallel, Amount: int64(who.most),
				Remaining: int64(who.most - who.open), Reset: now.Add(time.Second),
			}
			return nil, e
		}
	}
	ofKey, ofOrg := both[0].rate.ReserveN(now, units), both[1].rate.ReserveN(now, units)
	if wait := max(ofKey.DelayFrom(now), ofOrg.DelayFrom(now)); wait > 0 {
		ofKey.CancelAt(now)
		ofOrg.CancelAt(now)
		e := r.tooMany(wait)
		e.Limit = &wire.LimitState{}
		*e.Limit = stateOf(r.bounds.name, both, now)
		return nil, e
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

// spend charges a key for units that are known only from the answer.
func (r *reads) spend(org, key string, units int, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, who := range r.of(org, key, now) {
		who.rate.ReserveN(now, min(units, who.burst))
	}
}

// state returns the rate of a key or of its org, whichever has less left, without taking any.
func (r *reads) state(org, key string, now time.Time) wire.LimitState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return stateOf(r.bounds.name, r.of(org, key, now), now)
}

func (r *reads) tooMany(wait time.Duration) *wire.Error {
	return wire.RateLimited(fmt.Sprintf(
		"Too many %s with this API key or in this organization: each key can make %d in parallel and %.0f per second",
		r.bounds.what, r.bounds.atOnce, r.bounds.perSecond), wait)
}

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

// pacer bounds requests about what providers store, which cost no money.
type pacer struct {
	guard *guard.Guard
	reads *reads
}

// paced is what one request about a stored object costs besides money: part of its key's rate, and a request
// of the provider's quota. It is the guard.Quota of a request that is charged a fee.
type paced struct {
	*pacer
	x      *request
	note   ownership.Note
	free   func()
	grant  *quota.Grant // nil: nothing will be sent
	unused bool         // nothing was sent
}

// of returns what a request about an object will cost.
func (p *pacer) of(x *request, n ownership.Note) *paced { return &paced{pacer: p, x: x, note: n} }

func (p *paced) Take(ctx context.Context, _ *guard.Call) (err error) {
	org, key := p.x.caller.Org, p.x.caller.Key
	p.free, err = p.reads.begin(org.ID, key, 1, time.Now())
	if err != nil {
		return err
	}
	p.x.report(p.reads.state(org.ID, key, time.Now()))
	pool := p.guard.Passthrough.Pool(org, p.note)
	if pool == "" {
		return nil
	}
	// The request has no user, because nothing else of its caller waits for it.
	p.grant, err = p.guard.Grants.Take(ctx, org, quota.Request{Pool: pool, ID: p.x.id, Org: org.ID}, nil)
	if err != nil {
		p.free()
		return guard.QuotaError(err)
	}
	return nil
}

func (p *paced) Permit() error { return p.grant.Permit() }

func (p *paced) Give(ctx context.Context, _ *guard.Call) {
	if p.grant != nil {
		p.guard.Grants.Give(ctx, p.grant, p.unused)
		p.grant = nil
	}
	p.free()
}
