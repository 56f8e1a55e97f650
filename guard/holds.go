package guard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// HoldEndpoint is the endpoint of holds, in limits and in the ledger.
const HoldEndpoint wire.Endpoint = "holds"

// Holds keeps budgets for work that llmguard does not send: another program holds what its work may
// cost, and settles or voids that itself. What is neither settled nor voided expires and is charged.
// It is safe for concurrent use, and any process can end what another one held.
type Holds struct {
	guard *Guard

	mu    sync.Mutex
	known map[string]knownHold // by id: the open holds of this process, to end them without the store
}

// knownHold is an open hold and when it is forgotten.
type knownHold struct {
	hold  *budget.Hold
	until time.Time
	kept  *HeldState // its end, if that is in the journal
}

// Errors of holds.
var (
	// ErrNoHold means that the caller has no such hold, or that it ended too long ago.
	ErrNoHold = errors.New("guard: no such hold")
	// ErrHoldEnded means that the hold has ended in another way. The HeldState says how.
	ErrHoldEnded = errors.New("guard: the hold has ended")
)

// Spend is what work may cost, or has cost.
type Spend struct {
	Usage pricing.Usage // tokens; priced by the model unless Cost is set
	Cost  *pricing.Nano
}

// HeldState is a hold as its owner sees it.
type HeldState struct {
	ID, Model string
	How       string // empty while it is open; otherwise as in budget.Outcome
	Held      budget.Amounts
	Charged   pricing.Nano
	Overrun   pricing.Nano // part of Charged
	Kept      bool         // the store is unavailable; the end is in the journal
	Made      time.Time
	Ends      time.Time // zero unless it is open
	Statuses  []budget.Status
	Price     *pricing.Price
}

// Plan prices what a caller wants to hold, without I/O. Without a cost in most, a provider has to
// serve the model. Errors are *wire.Error.
func (hs *Holds) Plan(c Caller, model string, most Spend) (*Plan, error) {
	if len(model) > wire.MaxModel {
		return nil, wire.BadRequest("model", "string_above_max_length", "model has at most %d bytes", wire.MaxModel)
	}
	if model != "" {
		if err := allowed(c, model); err != nil {
			return nil, err
		}
	}
	p := hs.planOf(c, ledger.Call{Model: model, Labels: c.Labels}, time.Now())
	var err error
	p.Max, err = p.most(most)
	if err != nil {
		return nil, err
	}
	p.First = p.Max
	return p, nil
}

// planOf returns the plan of a hold without its amounts. A model that no provider serves, or that
// has no price, has the price of unpricedModel.
func (hs *Holds) planOf(c Caller, call ledger.Call, at time.Time) *Plan {
	policy := hs.guard.policy.Load()
	c.Labels = call.Labels
	p := &Plan{
		Caller: c, at: at, terms: pricing.Terms{At: at}, free: true, standard: policy.Headers.Standard,
		Request: &wire.Request{Endpoint: HoldEndpoint, Model: call.Model, OutputLimit: -1, N: 1},
		Target:  providers.Target{Provider: providers.Gone(call.Provider), Model: call.Model},
	}
	only := c.Org.Providers
	if call.Provider != "" {
		only = []string{call.Provider}
	}
	if call.Model != "" {
		if target, err := policy.Providers.Resolve(call.Model, only); err == nil {
			p.Target = target
			p.Price, _, _ = policy.priceOf(HoldEndpoint, target, at)
		}
	}
	if p.Price == nil {
		unpriced := providers.Target{Provider: providers.Gone(""), Model: unpricedModel}
		p.Price, _ = freePrice(unpriced, at) // fails for invalid rates only
	}
	p.Target.Pool = string(HoldEndpoint) // it takes no pool's quota
	p.sent = p.Request
	p.Limits = p.applying(c.limits())
	p.Caps = p.capping(policy.Caps)
	return p
}

// unpricedModel replaces, in metrics, the names of models without a price.
const unpricedModel = "unpriced"

// most returns what has to be held for a maximum.
func (p *Plan) most(s Spend) (budget.Amounts, error) {
	out := budget.Amounts{Tokens: s.Usage.Input + s.Usage.Output}
	if s.Cost != nil {
		out.Cost = *s.Cost
		return out, nil
	}
	if err := p.priced(); err != nil {
		return out, err
	}
	s.Usage.Requests = 1
	var err error
	out.Cost, err = p.Price.Ceiling(s.Usage, p.terms)
	if err != nil {
		return out, wire.BadRequest("", "request_not_priced", "This hold cannot be priced: %v", err)
	}
	return out, nil
}

// priced refuses tokens of a model whose price is unknown.
func (p *Plan) priced() error {
	switch {
	case p.Request.Model == "":
		return wire.BadRequest("cost_usd", "missing_required_parameter",
			"Without a model, tokens have no price: set cost_usd, or hold with a model")
	case p.Price.Model == unpricedModel && p.Price.Provider == "":
		return wire.BadRequest("model", "model_not_priced",
			"No provider of this deployment serves the model %.100q, or it has no price: set cost_usd", p.Request.Model)
	}
	return nil
}

// Take holds a plan's maximum for life, 1 minute to 30 days. Repeating it with the same id takes
// nothing twice. Errors are *Refusal, *StoppedError, budget.ErrEnded, *wire.Error,
// *capacity.FullError, or wrap
// budget.ErrUnavailable; then it may have been taken. If the caller knows the id, a repetition or
// Void finds it; otherwise it is voided soon, because nothing else would end it before it is charged.
func (hs *Holds) Take(ctx context.Context, p *Plan, id string, life time.Duration, known bool) (HeldState, error) {
	g, c := hs.guard, p.Caller
	call, made, err := callOf(c, id)
	if err != nil {
		return HeldState{}, err
	}
	if err := g.Stopped(c.Org.ID); err != nil {
		return HeldState{}, err
	}
	ctx = context.WithoutCancel(ctx) // a caller that hangs up must not abort what may have been applied
	if err := Turn(ctx, g.admission.holds, holdPatience); err != nil {
		return HeldState{}, err
	}
	defer func() { <-g.admission.holds }()
	call.Model, call.Provider, call.PriceVersion = p.Request.Model, p.Target.Provider.ID, p.Price.Version
	if err := hs.admit(ctx, c.Org, call, life); err != nil {
		return HeldState{}, err
	}
	h, asked, err := g.admission.hold(ctx, c.Org, budget.Terms{
		Limits: p.Limits, Caps: p.Caps, Call: call, Max: p.Max, Expected: p.Max, Life: life,
	})
	g.metrics.held(c.Org.ID, err)
	if err != nil {
		lost := asked && errors.Is(err, budget.ErrUnavailable) && !errors.Is(err, budget.ErrFull)
		if !lost {
			hs.release(ctx, call, 0)
		}
		if lost && !known {
			g.settler.voidLate(ctx, call, p.Caps)
		}
		return HeldState{}, p.refusal(err)
	}
	hs.remember(id, h)
	return HeldState{
		ID: id, Model: call.Model, Held: h.Max, Made: made, Ends: h.Ends, Statuses: h.Statuses, Price: p.Price,
	}, nil
}

// holdPatience is how long a hold waits for its turn.
const holdPatience = 5 * time.Second

// Get returns a caller's hold.
func (hs *Holds) Get(ctx context.Context, c Caller, id string) (HeldState, error) {
	call, made, err := callOf(c, id)
	if err != nil {
		return HeldState{}, err
	}
	h, out, err := hs.find(ctx, c.Org, call, nil)
	if err != nil {
		return HeldState{}, err
	}
	return stateOf(id, made, h, out), nil
}

func stateOf(id string, made time.Time, h *budget.Hold, out budget.Outcome) HeldState {
	st := HeldState{ID: id, How: out.How, Charged: out.Charged, Overrun: out.Overrun, Made: made}
	if h != nil {
		st.Model = h.Call.Model
	}
	if h != nil && out.How == "" {
		st.Held, st.Ends = h.Max, h.Ends
	}
	return st
}

// holdRules returns the limits and spend caps that a hold is extended under; an error ends the extension.
type holdRules func(ledger.Call) ([]budget.Limit, []budget.Cap, error)

// holder returns the caller with which a hold of the same user was taken, as its record has it: another key, address
// or run changes nothing about the limits and models that the hold has. ErrNoHold: the caller is a run, and
// the hold is not of it or of a run inside it.
func (c Caller) holder(record ledger.Call) (Caller, error) {
	if !record.Run.Within(c.Run) {
		return c, ErrNoHold
	}
	c.Key, c.IP, c.Models, c.KeyLabels = record.Key, record.IP, c.Org.KeyModels[record.Key], nil
	return c, nil
}

// find reads an open hold, or how it ended; of an expired one, both. rules are for holds to extend, nil for
// others. While the store is unknown to answer, the error wraps budget.ErrUnavailable.
func (hs *Holds) find(
	ctx context.Context, o *Org, call ledger.Call, rules holdRules,
) (h *budget.Hold, out budget.Outcome, err error) {
	b := hs.guard.budget.Shared
	err = hs.reach(ctx, o, call, func(ctx context.Context) error {
		for range 2 { // it may end in between
			out, err = b.Outcome(ctx, call)
			if err != nil || out.How != "" {
				h = out.Hold
				return err
			}
			h, err = b.Reopen(ctx, call, rules)
			if !errors.Is(err, budget.ErrEnded) {
				return err
			}
		}
		return ErrNoHold
	})
	return h, out, err
}

// reach runs a request to the store of a call. A caller that hangs up does not abort it.
func (hs *Holds) reach(ctx context.Context, o *Org, call ledger.Call, request func(context.Context) error) error {
	err := hs.guard.Outage.Reach(context.WithoutCancel(ctx), o, budget.Tags(call, nil), request)
	if errors.Is(err, context.Canceled) { // the store was silent
		err = fmt.Errorf("%w: %w", budget.ErrUnavailable, err)
	}
	return err
}

// More is an extension of a hold: new totals, so that a repetition adds nothing, and more time from
// now. Zero values change nothing.
type More struct {
	Total Spend
	Life  time.Duration
}

// Extend grows a hold, in all limits or in none, or prolongs it. It never shrinks or shortens it.
// Errors are as of Take; ErrHoldEnded means that it is no longer open.
func (hs *Holds) Extend(ctx context.Context, c Caller, id string, more More) (HeldState, error) {
	call, made, err := callOf(c, id)
	if err != nil {
		return HeldState{}, err
	}
	if err := hs.guard.Stopped(c.Org.ID); err != nil {
		return HeldState{}, err
	}
	var p *Plan
	h, out, err := hs.find(ctx, c.Org, call, func(open ledger.Call) ([]budget.Limit, []budget.Cap, error) {
		owner, err := c.holder(open)
		if err != nil {
			return nil, nil, err
		}
		owner, err = hs.guard.Runs.in(ctx, owner, open.Run)
		if err != nil {
			return nil, nil, err
		}
		if open.Model != "" {
			if err := allowed(owner, open.Model); err != nil {
				return nil, nil, err
			}
		}
		p = hs.planOf(owner, open, made)
		return p.Limits, p.Caps, nil
	})
	if err != nil {
		return HeldState{}, err
	}
	if out.How != "" {
		return stateOf(id, made, h, out), ErrHoldEnded
	}
	p.Max, err = hs.total(p, h, more.Total)
	if err != nil {
		return HeldState{}, err
	}
	err = hs.reach(ctx, c.Org, call, func(ctx context.Context) error {
		grow := budget.Amounts{Cost: p.Max.Cost - h.Max.Cost, Tokens: p.Max.Tokens - h.Max.Tokens}
		if grow != (budget.Amounts{}) {
			p.First = p.Max
			if err := p.Check(); err != nil {
				return err
			}
			p.First = grow
			_, err := hs.guard.budget.Extend(ctx, h, grow)
			hs.guard.metrics.extended(err)
			if err != nil {
				return p.refusal(err)
			}
		}
		if more.Life == 0 {
			return nil
		}
		if err := hs.admit(ctx, c.Org, h.Call, more.Life); err != nil {
			return err
		}
		return hs.guard.budget.Shared.Prolong(ctx, h, more.Life)
	})
	if errors.Is(err, budget.ErrEnded) {
		return HeldState{}, fmt.Errorf("%w: %w", ErrHoldEnded, err)
	}
	if err != nil {
		return HeldState{}, err
	}
	hs.remember(id, h)
	st := stateOf(id, made, h, out)
	st.Statuses, st.Price = h.Statuses, p.Price
	return st, nil
}

// total returns a hold's new amounts, at least the present ones.
func (hs *Holds) total(p *Plan, h *budget.Hold, s Spend) (budget.Amounts, error) {
	if s == (Spend{}) {
		return h.Max, nil
	}
	want, err := p.most(s)
	return budget.Amounts{Cost: max(want.Cost, h.Max.Cost), Tokens: max(want.Tokens, h.Max.Tokens)}, err
}

// idPrefix begins the ids of holds. A call id follows, which is derived from the owner, the part of the
// org and a nonce; then the part, in partDigits, and the nonce. So an id proves whose it is without the
// store, and every process finds the hold, however the org is spread by then.
const (
	idPrefix   = "hold_"
	partDigits = 2
)

// NewID returns an id for a hold. nonce must be unguessable or chosen by the caller; empty means
// random.
func (hs *Holds) NewID(c Caller, nonce string) string {
	if nonce == "" {
		nonce = rand.Text()
	}
	part := hs.guard.budget.Place(ledger.Call{Org: c.Org.ID, User: c.User, IP: c.IP}).Part
	nonce = fmt.Sprintf("%0*d%s", partDigits, part, strings.ToLower(nonce))
	return idPrefix + wire.DerivedCallID(time.Now(), ownerOf(c, nonce)) + nonce
}

// Made returns when the id of a caller's hold was made; zero if it is not the caller's.
func (hs *Holds) Made(c Caller, id string) time.Time {
	_, made, _ := callOf(c, id)
	return made
}

func ownerOf(c Caller, nonce string) string {
	return strings.Join([]string{string(HoldEndpoint), c.Org.ID, c.Owner(), strings.ToLower(nonce)}, "\x00")
}

// callOf returns the call of a hold's id and when it was made. ErrNoHold: the caller does not own it.
func callOf(c Caller, id string) (ledger.Call, time.Time, error) {
	rest, ok := strings.CutPrefix(id, idPrefix)
	callLen := len(wire.DerivedCallID(time.Time{}, ""))
	if !ok || len(rest) <= callLen+partDigits {
		return ledger.Call{}, time.Time{}, ErrNoHold
	}
	callID, nonce := rest[:callLen], rest[callLen:]
	at, ok := wire.CallTime(callID)
	if !ok || wire.DerivedCallID(at, ownerOf(c, nonce)) != callID {
		return ledger.Call{}, time.Time{}, ErrNoHold
	}
	part, err := strconv.Atoi(nonce[:partDigits])
	if err != nil || part < 1 {
		return ledger.Call{}, time.Time{}, ErrNoHold
	}
	return ledger.Call{
		ID: callID, Attempt: 1, Org: c.Org.ID, User: c.User, Key: c.Key, IP: c.IP, Endpoint: string(HoldEndpoint),
		Labels: c.Labels, Run: c.Run, Part: part,
	}, at, nil
}
