package guard

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/internal/wire"
)

// admission begins calls: it holds what they may cost.
type admission struct {
	guard    *Guard // whose calls these are
	budget   *budget.Store
	plans    *Planner
	settler  *settler
	outage   *Outage
	metrics  *metrics
	holders  *recentHolders
	holds    chan struct{} // one slot per hold of a live call in progress
	deadline time.Duration
	share    int // percent
}

// begin holds the plan's First against every applying limit and spend cap, all or nothing.
// While the store is unavailable, the org's OnStoreFailure decides. A full store counts as
// available: it refuses the call whatever that setting says. Errors are *Refusal, *StoppedError, *BrakedError,
// *capacity.FullError, or wrap budget.ErrUnavailable.
func (ad *admission) begin(ctx context.Context, p *Plan, a *Attempt) (*Call, error) {
	if err := ad.guard.Stopped(p.Caller.Org.ID); err != nil {
		return nil, err
	}
	if err := ad.guard.brakes.check(p); err != nil {
		return nil, err
	}
	if p.Max.Cost == 0 && a.JobID == "" { // no limit in money bounds what it leaves; a job counts it
		o := p.Caller.Org
		err := ad.outage.Reach(ctx, o, []string{o.ID}, func(ctx context.Context) error {
			return ad.guard.records.Admit(ctx, o.ID, freeCallBytes(p), endedHoldLife)
		})
		if capacity.IsFull(err) { // if the store is unavailable, the hold decides
			return nil, err
		}
	}
	c := newCall(ad.guard, p, a.ID, a.Number)
	c.JobID, c.Class, c.Alias, c.Cache = a.JobID, a.Class, a.Alias, string(a.cache)
	who := ad.budget.Place(ledger.Call{
		ID: a.ID, Attempt: a.Number, Org: p.Caller.Org.ID, User: p.Caller.User, Key: p.Caller.Key,
		IP: p.Caller.IP, Model: p.Request.Model, Provider: p.Target.Provider.ID,
		Endpoint: string(p.Request.Endpoint), PriceVersion: p.Price.Version, JobID: a.JobID, Batch: p.Caller.Batch,
		Labels: p.Caller.Labels, Request: p.Fingerprint, Run: p.Caller.Run,
	})
	// A caller that hangs up must not abort a hold that may have been applied.
	ctx = context.WithoutCancel(ctx)
	_, span := tracing.Start(ctx, "hold budget")
	hold, asked, err := ad.hold(ctx, p.Caller.Org, budget.Terms{
		Limits: countersOf(p), Caps: p.Caps, Call: who, Max: p.First, Expected: ad.plans.Expected(p),
	})
	p.traceHold(span, err)
	ad.metrics.held(p.Caller.Org.ID, err)
	if err != nil {
		// A full store still answers. Callers can fill it, so that must not disable
		// any budget.
		gone := errors.Is(err, budget.ErrUnavailable) && !errors.Is(err, budget.ErrFull)
		if gone && p.Caller.Org.WithoutStore() && a.JobID == "" { // jobs are in the store themselves
			return ad.beginWithout(ctx, c, who, asked)
		}
		if gone && asked {
			ad.settler.voidLate(ctx, who, p.Caps)
		}
		return nil, p.refusal(err)
	}
	c.holds(hold, p.start)
	if !a.Created.IsZero() {
		c.Waited = max(hold.At.Sub(a.Created), 0) // both are on Redis's clock
	}
	if err := ad.guard.brakes.judge(ctx, c); err != nil {
		return nil, err
	}
	return c, nil
}

// freeCallBytes returns about what Redis needs for a call that has ended: its tombstone, and the counters of
// brakes for its own request.
func freeCallBytes(p *Plan) int64 {
	n := int64(endedHoldBytes)
	for _, b := range p.Brakes {
		if b.Rule.Repeats > 0 {
			n += counterBytes
		}
	}
	return n
}

// counterBytes is about what Redis needs for a window.
const counterBytes = 512

// hold asks the store unless it is known to be unavailable; asked reports whether it did.
func (ad *admission) hold(ctx context.Context, o *Org, t budget.Terms) (h *budget.Hold, asked bool, err error) {
	tags := budget.Tags(t.Call, t.Caps)
	if !ad.outage.circuit.Ask(tags[0], time.Now()) {
		return nil, false, errAway
	}
	ctx, cancel := ad.outage.health.Bound(ctx, ad.deadline, tags...)
	defer cancel()
	h, err = ad.budget.Hold(ctx, t)
	ad.outage.heard(o, tags, ad.outage.health.Judge(ctx, err, tags...))
	return h, true, err
}

// admit admits a live call without the store, as its org allows. The call's maximum cost is
// in the journal before it is sent, because nothing can be held later.
func (ad *admission) admit(ctx context.Context, p *Plan, who ledger.Call) (*budget.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, ad.deadline)
	defer cancel()
	terms := budget.Terms{Limits: p.Limits, Caps: p.Caps, Call: who, Max: p.Max}
	if p.Caller.Org.OnStoreFailure == Allow {
		return ad.budget.Offline.AdmitAll(ctx, terms)
	}
	return ad.budget.Offline.AdmitShare(ctx, terms, ad.share)
}

// beginWithout is begin while the store is unavailable. If asked, a hold may have been
// applied before.
func (ad *admission) beginWithout(ctx context.Context, c *Call, who ledger.Call, asked bool) (*Call, error) {
	mode := c.Plan.Caller.Org.OnStoreFailure
	h, err := ad.admit(ctx, c.Plan, who)
	if err != nil {
		if asked {
			ad.settler.voidLate(ctx, who, c.Plan.Caps)
		}
		ad.metrics.without.WithLabelValues(mode, "refused").Inc()
		return nil, c.Plan.away(err)
	}
	ad.metrics.without.WithLabelValues(mode, "admitted").Inc()
	c.holds(h, c.Plan.Output)
	c.Without = mode
	return c, nil
}

// maxHolds bounds the holds of live calls in progress. A burst queues here, where a
// caller's patience bounds its wait, and not at Redis, where any wait looks like an outage.
const maxHolds = 128

// Turn waits for one of the slots for requests to Redis and takes it; receive from places
// to return it. The error is a *wire.Error when patience has run out, or the cause of ctx's
// end.
func Turn(ctx context.Context, places chan struct{}, patience time.Duration) error {
	select {
	case places <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return wire.ServiceUnavailable("Too many calls are queueing on this proxy right now", time.Second, nil)
	}
}

// recentHolders remembers which callers' last hold succeeded, with a fixed number of slots,
// because refused callers must not book quota with every call. Unknown callers count as
// refused. It is safe for concurrent use.
type recentHolders struct {
	seed   maphash.Seed
	places [holderPlaces]atomic.Uint64
}

const holderPlaces = 1 << 14

func newRecentHolders() *recentHolders { return &recentHolders{seed: maphash.MakeSeed()} }

// of identifies a caller and model by everything that limits distinguish.
func (l *recentHolders) of(p *Plan) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	for _, part := range [...]string{p.Caller.Org.ID, p.Caller.User, p.Caller.Key, p.Caller.IP, p.Request.Model} {
		h.WriteString(part)
		h.WriteByte(0)
	}
	return h.Sum64()
}

func (l *recentHolders) place(who uint64) *atomic.Uint64 { return &l.places[who%holderPlaces] }

func (l *recentHolders) has(who uint64) bool { return l.place(who).Load() == who }

func (l *recentHolders) note(who uint64, held bool) {
	p := l.place(who)
	switch last := p.Load(); {
	case held && last != who:
		p.Store(who)
	case !held && last == who:
		p.CompareAndSwap(who, 0)
	}
}
