package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/tokenizer"
)

// Plan is a priced request: what will be held, where it goes, and the edits its body needs.
// It is made without I/O. After that only its call modifies it, to release the body and to
// price the image that was made.
type Plan struct {
	Caller  Caller
	Request *wire.Request
	Target  providers.Target
	Price   *pricing.Price
	Limits  []budget.Limit // those of the org that apply to this call
	Caps    []budget.Cap   // those that apply to this call, each with its applying limits
	Brakes  []Braking      // those that count this call

	Input  int64 // tokens; for known tokenizers never below what the provider bills
	Output int64 // tokens, the most the provider may generate
	Max    budget.Amounts
	First  budget.Amounts // what is held before it is sent: Max, or less if the hold grows
	Quota  int64          // tokens charged to the provider's TPM
	// Fingerprint identifies equal requests for brakes on repetitions; empty if no such brake applies.
	Fingerprint string

	unseen  bool          // a member of the request may cause hidden output
	hides   bool          // see Batched.Hides
	without string        // tools that were left out of the request
	instead string        // the model the caller named, if a cheaper one serves the call
	sent    *wire.Request // what the provider is sent: Request, or its translation
	text    textPart

	slowed bool // a brake gives it low priority

	standard wire.Standard // of the headers that report its limits

	counts           bool  // it counts tokens, and is answered here
	counted          int64 // those tokens
	cached           bool  // it is answered from the response cache
	free             bool  // only the request itself is counted
	audioIn, imageIn int64 // tokens, parts of Input
	documents        int64 // number of documents, whose text is not visible
	unread           int64 // tokens, the part of Input they may come to
	made             made
	units            units
	tool             imageTool
	passes           []pass
	start, step      int64 // tokens of output: first held, and kept ahead; see first

	at    time.Time
	terms pricing.Terms
	edits []wire.Edit
	kept  references // what the request refers to
}

// Planner decides where a request goes, what it may cost, and which limits count it. It is
// safe for concurrent use.
type Planner struct {
	policy      *atomic.Pointer[Policy]
	counts      *tokenizer.Cache
	calibration *calibration.Calibration
	resolver    *resolver
	labels      *labeler // nil: values are not counted
	brakes      *brakes  // nil: none slows calls
	runs        *Runs    // nil: callers have no runs
	log         *slog.Logger
}

// NewPlanner returns a Planner for a policy that needs no Redis: requests that refer to
// stored things are refused. learned corrects estimates; nil leaves them unchanged.
func NewPlanner(p *Policy, learned *calibration.Calibration) *Planner {
	policy := new(atomic.Pointer[Policy])
	policy.Store(p)
	return newPlanner(learned, &resolver{policy: policy}, slog.New(slog.DiscardHandler))
}

func newPlanner(learned *calibration.Calibration, r *resolver, log *slog.Logger) *Planner {
	return &Planner{policy: r.policy, counts: tokenizer.NewCache(), calibration: learned, resolver: r, log: log}
}

// Prepare prices, without I/O, a request that does not refer to anything stored elsewhere.
// Errors are *wire.Error, worded for the caller.
func (pl *Planner) Prepare(c Caller, r *wire.Request) (*Plan, error) {
	if len(r.Refs) > 0 {
		return nil, notOwned(r.Refs[0])
	}
	return pl.prepare(c, r, references{})
}

// PrepareKept is Prepare that also resolves what the request refers to. The error may also
// wrap budget.ErrUnavailable.
func (pl *Planner) PrepareKept(ctx context.Context, c Caller, r *wire.Request) (*Plan, error) {
	c, err := pl.runs.Read(ctx, c)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	kept, err := pl.resolver.resolve(ctx, c, pl.resolver.refs(c, r))
	if err != nil {
		return nil, err
	}
	kept.waited = time.Since(began)
	if r.Model == "" {
		named := *r
		named.Model = kept.model
		r = &named
	}
	return pl.prepare(c, r, kept)
}

func (pl *Planner) prepare(c Caller, r *wire.Request, kept references) (*Plan, error) {
	policy := pl.policy.Load()
	if err := allowed(c, r.Model); err != nil {
		return nil, err
	}
	target, err := policy.Providers.Resolve(r.Model, kept.only(c.Org.Providers))
	if err != nil {
		return nil, notFound(r.Model)
	}
	target, err = c.Org.owning(target)
	if err != nil {
		return nil, err
	}
	at := time.Now()
	price, free, err := policy.priceOf(r.Endpoint, target, at)
	if err != nil {
		return nil, policy.unpriced(err)
	}
	p := &Plan{
		Caller: c.grouped(), Request: r, Target: target, Price: price, free: free, at: at, kept: kept,
		standard: policy.Headers.Standard,
		terms: pricing.Terms{
			ServiceTier: r.ServiceTier, ProjectTier: target.Provider.ServiceTier, At: at,
			Region: cmp.Or(r.InferenceGeo, target.Provider.Region), Batch: c.Batched,
		},
	}
	if err := p.accept(); err != nil {
		return nil, err
	}
	if err := withhold(p); err != nil {
		return nil, err
	}
	if err := p.translate(); err != nil {
		return nil, err
	}
	p.tool, err = policy.imageTool(p)
	if err != nil {
		return nil, err
	}
	e := &estimator{plan: p, counts: pl.counts, calibration: pl.calibration, price: policy.price}
	if err := e.estimate(); err != nil {
		return nil, err
	}
	p.Limits = p.applying(c.limits())
	p.Caps = p.capping(policy.Caps)
	p.Brakes = brakingOf(p)
	p.slowed = pl.brakes != nil && pl.brakes.slows(p)
	ed := editor{plan: p}
	ed.edit()
	return p, ed.identify()
}

// Standing returns where a call goes and which limits apply to it, without its price, for
// simulations. Only the request's model and endpoint matter.
func (p *Policy) Standing(c Caller, r *wire.Request) (providers.Target, []budget.Limit, []budget.Cap, error) {
	target, err := p.Providers.Resolve(r.Model, c.Org.Providers)
	if err != nil {
		return target, nil, nil, err
	}
	plan := &Plan{Caller: c, Request: r, Target: target}
	return target, plan.applying(c.limits()), plan.capping(p.Caps), nil
}

// Braking returns the brakes that count a call, for simulations; fingerprint is its Plan.Fingerprint.
func (p *Policy) Braking(c Caller, r *wire.Request, t providers.Target, fingerprint string) []Braking {
	plan := &Plan{Caller: c, Request: r, Target: t, Fingerprint: fingerprint}
	return brakingOf(plan)
}

// allowed checks the org's and the key's model lists. Both refusals are a 404, as the
// provider returns for a model the account does not have.
func allowed(c Caller, model string) error {
	if !providers.MatchAny(c.Org.Models, model) || !providers.MatchAny(c.Models, model) {
		return notFound(model)
	}
	for i := range c.Runs {
		if !providers.MatchAny(c.Runs[i].Models, model) {
			return notFound(model)
		}
	}
	return nil
}

func notFound(model string) *wire.Error {
	return wire.NotFound("model", "model_not_found",
		"The model %.100q does not exist or this key may not use it. GET /v1/models lists the models it may use", model)
}

func (p *Policy) unpriced(err error) error {
	if unknown, ok := errors.AsType[*pricing.UnknownModelError](err); ok {
		known := pricing.ModelNames(p.Catalogue.Entries(), "")
		return wire.BadRequest("model", "model_not_priced", "%v%s", err, settings.DidYouMean(unknown.Model, known))
	}
	return fmt.Errorf("price: %w", err)
}

// withhold leaves out web searches that an agent offers in every call, if the org does not allow them, or
// the provider has another wire, which cannot offer them.
func withhold(p *Plan) error {
	same := p.Target.Provider.Wire(p.Request.Endpoint) == p.Request.Endpoint
	if p.Caller.Org.AllowBuiltinTools && same {
		return nil
	}
	less, edit := p.Request.WithoutOffers()
	if less == nil {
		return nil
	}
	p.without = "web_search"
	if same {
		p.Request, p.edits = less, append(p.edits, edit)
		return nil
	}
	body := p.Request.Rewrite(edit).Bytes()
	rest, err := wire.Scan(p.Request.Endpoint, body, wire.Limits{MaxTokens: math.MaxInt32})
	if err != nil {
		return err
	}
	rest.Model, rest.Refs = p.Request.Model, p.Request.Refs
	p.Request = rest
	return nil
}

// editor lists the changes that a plan makes to the request's body.
type editor struct{ plan *Plan }

// edit lists the changes the forwarded body needs; without any it is forwarded byte for
// byte.
func (ed *editor) edit() {
	r := ed.plan.sent
	if ed.plan.Target.Model != r.Model || r.Implied {
		ed.plan.edits = append(ed.plan.edits, wire.Edit{Name: "model", JSON: strconv.AppendQuote(nil, ed.plan.Target.Model)})
	}
	ed.plan.edits = append(ed.plan.edits, ed.plan.Target.Provider.Dialect.Edits(r)...)
	if r.Background { // background runs are ours, not the provider's
		ed.plan.edits = append(ed.plan.edits, wire.Edit{Name: "background", JSON: []byte("false")})
	}
	ed.plan.edits = append(ed.plan.edits, ed.plan.kept.edits...)
	ed.plan.edits = append(ed.plan.edits, ed.renamed()...)
	if limit := ed.plan.defaultLimit(); ed.splices(limit) {
		ed.plan.edits = append(ed.plan.edits, wire.Edit{Name: ed.plan.limitField(), JSON: strconv.AppendInt(nil, limit, 10)})
	}
}

// splices reports whether the org's default output limit must be written into the request
// to take effect.
func (ed *editor) splices(limit int64) bool {
	own := ed.plan.Request.Endpoint.Traits().DefaultOutput > 0 && ed.plan.Price.Provider == "openai" // its own default
	return limit > 0 && ed.plan.Request.OutputLimit < 0 && !own
}

// Least returns the least the call can cost as far as that is known in advance: nothing
// cached, no output, and empty documents.
func (p *Plan) Least() pricing.Nano {
	u := p.usage(0)
	u.Input, u.ToolCalls, u.SearchUnits = u.Input-p.unread, p.searches(), p.units.least
	cost, err := p.Price.Charge(u, p.terms)
	if err != nil {
		return 0
	}
	return cost
}

// Fee plans a charge that a catalogue entry's price alone bounds: `units` of its
// per_request fee. endpoint is the name under which limits count it. The error is a
// *wire.Error.
func (pl *Planner) Fee(c Caller, provider, endpoint, entry string, units int64) (*Plan, error) {
	policy, at := pl.policy.Load(), time.Now()
	p := policy.Providers.Get(provider)
	if p == nil || len(p.Pools) == 0 {
		return nil, gone()
	}
	target, err := c.Org.owning(providers.Target{Provider: p, Pool: p.Pools[0].ID, Model: entry})
	if err != nil {
		return nil, err
	}
	price, err := policy.Catalogue.Lookup(p.ID, entry, at)
	if err != nil {
		return nil, wire.BadRequest("", "not_priced",
			"This request has a cost, but no price is configured. An operator can add one for %q under prices", entry)
	}
	plan := &Plan{
		Caller: c, Target: target, Price: price, at: at, free: true,
		Request: &wire.Request{Endpoint: wire.Endpoint(endpoint), Model: entry, OutputLimit: -1, N: 1},
		terms:   pricing.Terms{At: at}, standard: policy.Headers.Standard,
	}
	plan.sent = plan.Request
	plan.Max.Cost, err = price.Ceiling(pricing.Usage{Requests: units}, plan.terms)
	if err != nil {
		return nil, wire.BadRequest("", "not_priced", "This request cannot be priced: %v", err)
	}
	plan.First = plan.Max
	plan.Limits = plan.applying(c.limits())
	plan.Caps = plan.capping(policy.Caps)
	return plan, nil
}
