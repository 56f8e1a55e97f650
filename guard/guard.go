// Package guard makes paid calls: each is priced before it is sent, held against every
// limit of its org, forwarded, observed, and settled at its actual cost.
//
// A call goes through Prepare (price it, no I/O) and Run: hold, take the provider's quota,
// Forward (send, relay, watch usage) and End (settle or void). A Call that was begun must
// be ended; End on a call that never reached the provider releases the whole hold. If the
// process dies in between, the hold expires and is charged.
//
// Guard does not wait or queue; package queue does.
package guard

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/cache"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/responses/conversation"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/quota"
)

// Org is the configuration of one organization.
type Org struct {
	// Org is the org as in effect. What a call obeys of it without more is read from here.
	settings.Org
	// Limits are the org's own. UserLimits, by user id, replace them for users with a group, a
	// plan or limits of their own, and PlanLimits, by key id, for keys with a plan of their own.
	// Users and keys with the same limits may share a list.
	Limits     []budget.Limit
	UserLimits map[string][]budget.Limit
	PlanLimits map[string][]budget.Limit
	// KeyModels, by key id, are the models that keys may use; keys without an element may use all.
	KeyModels map[string][]string
	// KeyBorn and UserBorn, by id, distinguish keys and users from earlier ones with their ids.
	KeyBorn, UserBorn map[string]string
	// KeyLimits, by key id, apply in addition to any of them.
	KeyLimits map[string][]budget.Limit
	// Groups are the groups of users who have one; GroupLimits are what apply to a member of
	// each group without a plan and limits of its own.
	Groups      map[string]string
	GroupLimits map[string][]budget.Limit
	// Credentials, by provider, are used instead of the deployment's.
	Credentials map[string]Credential
	// Disabled users cannot make calls, and their jobs fail.
	DisabledUsers map[string]bool
	// Spread divides the org's money over several slots of a cluster.
	Spread budget.Spread
	// KeepStarted fails a job whose worker died after the request may have reached the
	// provider, instead of running it again.
	KeepStarted bool
	// Priorities are those of its calls.
	Priorities Priorities
	// Brakes count calls, and stop or slow those that run wild.
	Brakes []*budget.Brake
}

// The choices of on_disconnect besides auto.
const (
	Cancel = "cancel" // cancel all
	Finish = "finish" // read every answer to its end
)

// RefusesOverLimit reports whether calls over a limit get 429 immediately instead of queueing.
func (o *Org) RefusesOverLimit() bool { return o.OverLimit == "refuse" }

// LimitsFor returns the limits that apply to a user of the org with a key.
func (o *Org) LimitsFor(user, key string) []budget.Limit {
	limits := o.Limits
	if own, ok := o.PlanLimits[key]; ok {
		limits = own
	} else if own, ok := o.UserLimits[user]; ok {
		limits = own
	}
	if own := o.KeyLimits[key]; len(own) > 0 {
		return slices.Concat(limits, own)
	}
	return limits
}

// LimitLists yields every list of limits of the org once: its own, and those of groups, users and
// keys.
func (o *Org) LimitLists() iter.Seq[[]budget.Limit] {
	return func(yield func([]budget.Limit) bool) {
		if !yield(o.Limits) {
			return
		}
		seen := map[*budget.Limit]bool{}
		for _, lists := range []map[string][]budget.Limit{o.GroupLimits, o.UserLimits, o.PlanLimits, o.KeyLimits} {
			for _, list := range lists {
				if len(list) == 0 || seen[&list[0]] {
					continue
				}
				seen[&list[0]] = true
				if !yield(list) {
					return
				}
			}
		}
	}
}

// Policy is one consistent view of the configuration.
type Policy struct {
	Orgs      map[string]*Org
	Catalogue *pricing.Catalogue
	// UnknownPrice, if set, is the price of models that the catalogue does not know;
	// nil refuses them. Its Model is their name in metrics; its Provider is ignored and
	// its Use must be empty.
	UnknownPrice *pricing.Entry
	Providers    *providers.Set
	// Caps bound what all orgs together spend.
	Caps []budget.Cap
	// RequestLimits limit requests, whatever they cost.
	RequestLimits []RequestLimit
	// Labels are the dimensions of calls.
	Labels []Label
	// Stopped stops all spending; see Options.Stops.
	Stopped bool
	// Headers say how answers report limits and when to retry.
	Headers wire.HeaderRules
	// PublicURL is where callers reach the API, without a slash at its end; empty: unknown.
	PublicURL string
}

// price returns the price of calls to a target. The price of unknown models does not apply
// to a model that is known but ambiguous: several vendors' prices for one name, or a price
// that takes effect later.
func (p *Policy) price(t providers.Target, at time.Time) (*pricing.Price, error) {
	price, err := p.Catalogue.Lookup(t.Provider.ID, t.Model, at)
	if err == nil {
		return price, nil
	}
	var unknown *pricing.UnknownModelError
	if p.UnknownPrice == nil || !errors.As(err, &unknown) || len(unknown.Providers) > 0 || !unknown.NotBefore.IsZero() {
		return price, err
	}
	e := *p.UnknownPrice
	e.Provider = t.Provider.ID
	if price, errPrice := e.Price(at); errPrice == nil {
		return price, nil
	}
	return nil, err // report the caller's model as unpriced, not the entry
}

// Options configure a Guard. Budget and Policy are required.
type Options struct {
	Budget *budget.Store
	Policy *Policy
	// Calibration learns how far estimates are off; nil leaves them unchanged.
	Calibration *calibration.Calibration
	// Quota is the provider quota for live calls, which learns from every answer; nil
	// means none.
	Quota *quota.Quota
	// Stops, if set, returns the orgs whose spending is stopped; tenants.AllOrgs stops everybody. It
	// is called for every call and must not block.
	Stops func() map[string]*tenants.Stop
	// BrakeRecords, if set, returns the recorded brakes of an org. It must not block. BrakeFired is called
	// for each brake that fires, possibly several times, and returns when BrakeRecords has it or ctx ends.
	BrakeRecords func(org string) tenants.Brakes
	BrakeFired   func(ctx context.Context, f BrakeFiring)
	// Charged, if set, is called with the org and user of a charged call. It must not
	// block.
	Charged func(org, user string)
	// RunReached, if set, is called with a run whose amount does not suffice for a call, whenever such a
	// call is refused. It must not block.
	RunReached func(budget.Run)
	// Ownership records what providers store for the orgs; if nil, stored things cannot
	// be referred to.
	Ownership *ownership.Store
	// Conversations stores the responses of providers that have none of their own; if
	// nil, they cannot be referred to.
	Conversations *conversation.Store
	// Cache stores the answers that orgs reuse; if nil, none are.
	Cache *cache.Store
	// Memory admits the records that callers create to the memory of Redis; if nil, it has no bound.
	Memory *capacity.Memory
	// StoreDeadline is how long a decision waits for Redis before a ping checks whether
	// it answers at all; default 250 ms.
	StoreDeadline time.Duration
	// Spool is the memory for answers in progress; nil means a default one.
	Spool *spool.Store
	// LocalShare is the percentage of each limit that this process may admit on its own
	// while the store is unavailable, for orgs with Local; default 10.
	LocalShare int
	Log        *slog.Logger
	Metrics    prometheus.Registerer
}

// Guard makes calls; its parts handle the tasks around them. It is safe for concurrent use.
type Guard struct {
	Plans       *Planner
	Outage      *Outage
	Grants      *Grants
	Objects     *Objects
	Passthrough *Passthrough
	Storage     *Storage
	Batches     *Batches
	Requests    *Requests
	Holds       *Holds
	Runs        *Runs

	admission   *admission
	settler     *settler
	budget      *budget.Store
	policy      *atomic.Pointer[Policy]
	stops       func() map[string]*tenants.Stop // may be nil
	brakes      *brakes
	calibration *calibration.Calibration
	ownership   *ownership.Store
	turns       *conversation.Store
	cache       *cache.Store  // may be nil
	cachePuts   chan struct{} // one slot per answer being stored
	spool       *spool.Store
	answerWait  time.Duration // how long an answer waits for memory
	deadline    time.Duration
	log         *slog.Logger
	metrics     *metrics
	runReached  func(budget.Run)
	records     *records
	told        sync.Map // what was already logged about calls that cost more than their price
}

// New returns a Guard. Close waits for its settlements in progress.
func New(o Options) *Guard {
	if o.StoreDeadline <= 0 {
		o.StoreDeadline = 250 * time.Millisecond
	}
	if o.LocalShare <= 0 {
		o.LocalShare = 10
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Spool == nil {
		o.Spool = spool.New(spool.Options{Log: o.Log})
	}
	g := &Guard{
		budget: o.Budget, policy: new(atomic.Pointer[Policy]), calibration: o.Calibration, ownership: o.Ownership,
		turns: o.Conversations, spool: o.Spool, answerWait: answerPatience, deadline: o.StoreDeadline, log: o.Log,
		metrics: newMetrics(o.Metrics), stops: o.Stops, cache: o.Cache, cachePuts: make(chan struct{}, maxCachePuts),
		brakes:     &brakes{records: o.BrakeRecords, fired: o.BrakeFired},
		runReached: o.RunReached,
	}
	g.policy.Store(o.Policy)
	watchStops(o.Metrics, g.stopCounts)
	watchBrakes(o.Metrics, g.brakesActive)
	g.Outage = newOutage(o)
	if o.Metrics != nil {
		o.Metrics.MustRegister(newOutageCollector(g.Outage))
	}
	g.Grants = &Grants{quota: o.Quota, outage: g.Outage, deadline: o.StoreDeadline, log: o.Log}
	found := &resolver{policy: g.policy, ownership: g.ownership, turns: g.turns, deadline: o.StoreDeadline}
	g.Plans = newPlanner(o.Calibration, found, o.Log)
	g.Plans.brakes = g.brakes
	g.records = &records{memory: o.Memory}
	g.Runs = &Runs{budget: o.Budget, outage: g.Outage, memory: g.records}
	g.Plans.runs = g.Runs
	g.Plans.labels = &labeler{count: o.Budget.CountLabel, outage: g.Outage}
	g.Passthrough = &Passthrough{policy: g.policy, spool: o.Spool, answerWait: answerPatience, log: o.Log}
	g.Storage = &Storage{
		policy: g.policy, budget: o.Budget, plans: g.Plans, passthrough: g.Passthrough, ownership: g.ownership, log: o.Log,
	}
	g.Objects = &Objects{resolver: found, passthrough: g.Passthrough, storage: g.Storage, log: o.Log}
	g.settler = &settler{budget: o.Budget, outage: g.Outage, charged: o.Charged, log: o.Log, metrics: g.metrics}
	g.settler.ends = redisconn.NewBatcher(endMost, g.settler.endBatch)
	g.admission = &admission{
		guard: g, budget: g.budget, plans: g.Plans, settler: g.settler, outage: g.Outage, metrics: g.metrics,
		holders: newRecentHolders(), holds: make(chan struct{}, maxHolds), deadline: g.deadline, share: o.LocalShare,
	}
	g.Batches = &Batches{guard: g}
	g.Requests = &Requests{policy: g.Policy, budget: o.Budget}
	g.Holds = &Holds{guard: g, known: map[string]knownHold{}}
	return g
}

// Policy returns the current configuration.
func (g *Guard) Policy() *Policy { return g.policy.Load() }

// SetPolicy replaces the configuration. Calls already begun keep theirs.
func (g *Guard) SetPolicy(p *Policy) { g.policy.Store(p) }

// Status returns the state of the limits that apply to a caller, without a hold.
func (g *Guard) Status(ctx context.Context, c Caller) ([]budget.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, g.deadline)
	defer cancel()
	return g.budget.Peek(ctx, c.limits(), c.subject())
}

// Usage returns what the caller's user spent in the UTC days of [from, to), by the dimensions.
func (g *Guard) Usage(ctx context.Context, c Caller, from, to time.Time, by ...string) (*ledger.Report, error) {
	if !ledger.ValidID(c.User) { // a filter could take it for a pattern
		return &ledger.Report{}, nil
	}
	return ledger.Read(ctx, g.budget.Ledger, ledger.Query{
		Orgs: []string{c.Org.ID}, From: from, To: to, By: ledger.By(by...), Filter: ledger.OfUser(c.User),
	})
}

// Close waits until every settlement has been written or ctx ends.
func (g *Guard) Close(ctx context.Context) error {
	done := make(chan struct{})
	go func() { g.settler.settling.Wait(); close(done) }()
	select {
	case <-done:
		if g.ownership != nil {
			return g.ownership.Close(ctx)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
