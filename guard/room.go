package guard

import (
	"context"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// Waiter is a waiting call as limits see it: who makes it, and what it will hold.
type Waiter struct {
	ledger.Call
	Want budget.Amounts
}

// Room is the current state of the limits of a waiting call.
type Room struct {
	Statuses []budget.Status
	price    *pricing.Price // nil if the model no longer has one
	held     pricing.Nano
	standard wire.Standard
}

// Rooms reads the limits of waiting calls. The zero value knows none.
type Rooms struct {
	Policy *Policy
	Store  *budget.Store
}

// Rooms returns the limits of waiting calls under the current policy.
func (g *Guard) Rooms() Rooms { return Rooms{g.policy.Load(), g.budget} }

// Room returns the current state of the limits of a waiting call.
func (rs Rooms) Room(ctx context.Context, w Waiter) (*Room, error) {
	if rs.Policy == nil {
		return nil, nil
	}
	target, limits, _, err := rs.Policy.Bounds(w.Call)
	if err != nil {
		return nil, err
	}
	r := &Room{held: w.Want.Cost, standard: rs.Policy.Headers.Standard}
	if price, _, err := rs.Policy.priceOf(wire.Endpoint(w.Endpoint), target, time.Now()); err == nil {
		r.price = price
	}
	r.Statuses, err = rs.Store.Room(ctx, limits, at(w.Call, target), w.Want)
	return r, err
}

// Bind binds a waiting call in a Virtual of its store: to its limits, those of its runs among them, and
// to its spend caps. The zero Rooms bind to none.
func (rs Rooms) Bind(ctx context.Context, v *budget.Virtual, w Waiter) (*budget.Bound, error) {
	if rs.Policy == nil {
		return &budget.Bound{Own: &budget.Standing{}}, nil
	}
	c, err := rs.Policy.Caller(w.Org, w.User, w.Key, w.IP)
	if err != nil {
		return nil, err
	}
	c.Labels, c.Run = w.Labels, w.Run
	c, err = (&Runs{budget: rs.Store}).Read(ctx, c)
	if err != nil {
		return nil, err
	}
	target, limits, caps, err := rs.Policy.Standing(c, &wire.Request{Model: w.Model, Endpoint: wire.Endpoint(w.Endpoint)})
	if err != nil {
		return nil, err
	}
	return v.BindAll(limits, caps, at(w.Call, target))
}

// at returns a call with its provider.
func at(c ledger.Call, t providers.Target) ledger.Call {
	c.Provider = t.Provider.ID
	return c
}

// Bounds returns the target of a waiting call, and the limits and spend caps that apply to it, but not those of runs.
func (p *Policy) Bounds(w ledger.Call) (providers.Target, []budget.Limit, []budget.Cap, error) {
	c, err := p.Caller(w.Org, w.User, w.Key, w.IP)
	if err != nil {
		return providers.Target{}, nil, nil, err
	}
	c.Labels = w.Labels
	return p.Standing(c, &wire.Request{Model: w.Model, Endpoint: wire.Endpoint(w.Endpoint)})
}

// Tell writes the headers in which an answer reports the limits.
func (r *Room) Tell(h http.Header) {
	if r != nil && r.price != nil {
		TellLimits(h, &LimitReport{
			Statuses: r.Statuses, At: time.Now(), Price: r.price, Held: r.held, Standard: r.standard,
		})
	}
}
