package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// The choices for who sends the lines of batches.
const (
	ByQueue    = "queue"    // llmguard, one by one, at the pool's quota
	ByProvider = "provider" // the provider's own Batch API
)

// BatchTarget returns where the lines of a caller's batch for a model go, and who sends
// them: the org's choice, or else the provider's, if its API has the endpoint. The error is a *wire.Error.
func (pl *Planner) BatchTarget(
	c Caller, ep wire.Endpoint, model string,
) (t providers.Target, byProvider bool, err error) {
	if err := allowed(c, model); err != nil {
		return t, false, err
	}
	t, err = pl.policy.Load().Providers.Resolve(model, c.Org.Providers)
	if err != nil {
		return t, false, notFound(model)
	}
	mode := c.Org.BatchMode
	if mode == "" {
		mode = t.Provider.BatchMode
	}
	return t, mode == ByProvider && t.Provider.RunsBatches(ep), nil
}

// Batched is a call made by a provider's Batch API. It holds what any process needs to end
// it without the request.
type Batched struct {
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
	Tier    string `json:"tier,omitempty"`
	Region  string `json:"region,omitempty"`
	Input   int64  `json:"input"`
	Output  int64  `json:"output"`
	Most    int64  `json:"most"` // nano-USD held
	At      int64  `json:"at"`   // Unix seconds of its price
	Store   bool   `json:"store,omitempty"`
	// Caches means it requested cache writes, and LongCache writes of an hour.
	Caches    bool `json:"caches,omitempty"`
	LongCache bool `json:"long_cache,omitempty"`
	// Hides means it may be billed for output that its answer does not show.
	Hides bool `json:"hides,omitempty"`
	// WebSearch means it requested a search. Tools are the types of tools that the provider runs, and Calls bounds
	// their calls; -1: not bounded.
	WebSearch bool     `json:"web_search,omitempty"`
	Tools     []string `json:"tools,omitempty"`
	Calls     int64    `json:"calls,omitempty"`
	// Labels are those of the line.
	Labels ledger.Labels `json:"labels,omitempty"`

	// The same for all lines of a batch.
	Provider string        `json:"-"`
	Model    string        `json:"-"` // as named by the caller
	Upstream string        `json:"-"` // as named by the provider
	Endpoint wire.Endpoint `json:"-"`
}

// Batches handles calls that the providers' own Batch APIs make.
type Batches struct{ guard *Guard }

// Hold holds a plan made for a Batched caller, for life. It is idempotent. Errors are
// *Refusal, *StoppedError, budget.ErrEnded, or wrap budget.ErrUnavailable; in the last case a repetition
// finds what may have been held.
func (bs *Batches) Hold(ctx context.Context, p *Plan, id string, attempt int, life time.Duration) (Batched, error) {
	b := Batched{
		ID: id, Attempt: attempt, Tier: p.Request.ServiceTier, Region: p.terms.Region,
		Input: p.Input, Output: p.Output, Most: int64(p.Max.Cost), At: p.at.Unix(), Store: p.Request.Store,
		Caches: p.Request.Caches, LongCache: p.Request.LongCache, Hides: p.hidesOutput() || len(p.passes) > 0,
		WebSearch: p.Request.WebSearch, Tools: p.Request.BuiltinTools, Calls: p.Request.MaxToolCalls,
		Provider: p.Target.Provider.ID, Model: p.Request.Model, Upstream: p.Target.Model,
		Endpoint: p.Request.Endpoint, Labels: p.Caller.Labels,
	}
	if err := bs.guard.Stopped(p.Caller.Org.ID); err != nil {
		return b, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	who, err := bs.guard.budget.LocateAgain(ctx, b.call(p.Caller, p.Price))
	if err != nil {
		return b, err
	}
	_, err = bs.guard.budget.Hold(ctx, budget.Terms{
		Limits: p.Limits, Caps: p.Caps, Call: who,
		Max: p.Max, Expected: bs.guard.Plans.Expected(p), Life: life,
	})
	bs.guard.metrics.held(p.Caller.Org.ID, err)
	if err != nil {
		return b, p.refusal(err)
	}
	return b, nil
}

// Body returns the request as sent to the provider.
func (p *Plan) Body() wire.Body { return p.Request.Rewrite(p.edits...) }

func (b *Batched) call(c Caller, price *pricing.Price) ledger.Call {
	return ledger.Call{
		ID: b.ID, Attempt: b.Attempt, Org: c.Org.ID, User: c.User, Key: c.Key, IP: c.IP,
		Model: b.Model, Provider: b.Provider, Endpoint: string(b.Endpoint), PriceVersion: price.Version,
		Labels: cmp.Or(b.Labels, c.Labels), Run: c.Run, Batch: c.Batch,
	}
}

// BatchedEnd is the end of a Batched call. Status is 0 if it never ran.
type BatchedEnd struct {
	Batched
	Status    int
	RequestID string
	Body      []byte
	// Lost means it may have run but the outcome is unknown: its hold is charged.
	Lost bool
}

// End settles calls. It bills by the usage in their
// answers and releases the holds of calls that did not run or were refused. It returns once
// that is written; after an error the same calls can be ended again.
func (bs *Batches) End(ctx context.Context, c Caller, ends []BatchedEnd) error {
	calls := make([]*Call, len(ends))
	endings := make([]budget.Settle, len(ends))
	for i := range ends {
		call, err := bs.call(ctx, c, &ends[i])
		if err != nil {
			return err
		}
		calls[i], endings[i] = call, call.ending()
	}
	ctx, cancel := context.WithTimeout(ctx, batchedTimeout)
	defer cancel()
	if err := bs.locate(ctx, c.Org.ID, endings); err != nil {
		return err
	}
	for i, done := range bs.guard.budget.SettleAll(ctx, endings) {
		r := &calls[i].Result
		// ErrTooOld means a process wrote it earlier and died before reporting it.
		if done.Err != nil && !errors.Is(done.Err, budget.ErrTooOld) {
			return done.Err
		}
		if !done.Receipt.Replayed {
			bs.guard.metrics.ended(calls[i])
			calls[i].tellUnderpriced()
			calls[i].tellFaults()
			bs.guard.metrics.of(calls[i]).settled(r.Usage, r.Estimated, done.Receipt)
		}
	}
	if charged := bs.guard.settler.charged; charged != nil && len(ends) > 0 {
		charged(c.Org.ID, c.User)
	}
	return nil
}

// locate finds the parts of the org in which the calls are held, because the org's spread may have
// changed since.
func (bs *Batches) locate(ctx context.Context, org string, endings []budget.Settle) error {
	calls := make([]ledger.Call, len(endings))
	for i := range endings {
		calls[i] = endings[i].Hold.Call
	}
	found, err := bs.guard.budget.Locate(ctx, org, calls)
	for i := range found {
		endings[i].Hold.Call = found[i]
	}
	return err
}

// batchedTimeout bounds the write of a few hundred endings.
const batchedTimeout = 20 * time.Second

// call rebuilds the call as it was when it was held, with its outcome.
func (bs *Batches) call(ctx context.Context, c Caller, end *BatchedEnd) (*Call, error) {
	policy := bs.guard.policy.Load()
	p := policy.Providers.Get(end.Provider)
	if p == nil { // its call must still be settled
		p = providers.Gone(end.Provider)
	}
	at := time.Unix(end.At, 0)
	target := providers.Target{Provider: p, Model: end.Upstream, Pool: p.PoolOf(end.Upstream)}
	price, free, err := policy.priceOf(end.Endpoint, target, at)
	unpriced := err != nil
	if unpriced {
		price, err = freePrice(target, at)
		if err != nil {
			return nil, fmt.Errorf("the price of %s: %w", end.Upstream, err)
		}
	}
	plan := &Plan{
		Caller: c, Target: target, Price: price, free: free, Input: end.Input, Output: end.Output, at: at,
		hides: end.Hides,
		Request: &wire.Request{
			Endpoint: end.Endpoint, Model: end.Model, Store: end.Store, Caches: end.Caches,
			LongCache: end.LongCache, WebSearch: end.WebSearch, BuiltinTools: end.Tools, MaxToolCalls: end.Calls,
		},
		Max:   budget.Amounts{Cost: pricing.Nano(end.Most), Tokens: end.Input + end.Output},
		terms: pricing.Terms{ServiceTier: end.Tier, Region: end.Region, ProjectTier: p.ServiceTier, At: at, Batch: true},
	}
	plan.sent = plan.Request
	plan.Caps = plan.capping(policy.Caps)
	hold := budget.Lost(end.call(c, price), plan.Caps...)
	hold.Max = plan.Max
	call := newCall(bs.guard, plan, end.ID, end.Attempt)
	call.holds(hold, end.Output)
	call.Result.Status = end.Status
	call.Result.UpstreamID = end.RequestID
	e := &upstreamCall{call: call, upstream: ctx}
	switch {
	case end.Lost, unpriced && end.Status > 0 && end.Status < http.StatusMultipleChoices:
		call.bill.chargeHold(Broken)
	case end.Status >= http.StatusMultipleChoices:
		call.Result.Outcome = Rejected // a Batch API bills only what it completes
	case end.Status > 0 && e.settlePlain(end.Body) != nil:
		call.bill.chargeHold(Broken) // half an answer; what is none has the status of an error
	}
	return call, nil
}
