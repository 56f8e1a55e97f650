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
	Org, User, Key, IP string
	Labels             ledger.Labels
	Model              string
	Endpoint           wire.Endpoint
	Want               budget.Amounts
}

// Room is the current state of the limits of a waiting call.
type Room struct {
	Statuses []budget.Status
	refused  *budget.ExceededError // nil: the call is within all of them
	price    *pricing.Price        // nil if the model no longer has one
	held     pricing.Nano
	standard wire.Standard
}

// Room returns the current state of the limits and spend caps of a waiting call.
func (g *Guard) Room(ctx context.Context, w Waiter) (*Room, error) {
	return g.policy.Load().Room(ctx, g.budget, w)
}

// Room is Guard.Room for programs without a Guard.
func (p *Policy) Room(ctx context.Context, store *budget.Store, w Waiter) (*Room, error) {
	target, limits, caps, err := p.bounds(w)
	if err != nil {
		return nil, err
	}
	r := &Room{held: w.Want.Cost, standard: p.Headers.Standard}
	if price, _, err := p.priceOf(w.Endpoint, target, now()); err == nil {
		r.price = price
	}
	who := ledger.Call{Org: w.Org, User: w.User, Key: w.Key, IP: w.IP, Model: w.Model, Provider: target.Provider.ID}
	r.Statuses, r.refused, err = store.Room(ctx, limits, caps, who, w.Want)
	return r, err
}

func (p *Policy) bounds(w Waiter) (providers.Target, []budget.Limit, []budget.Cap, error) {
	c, err := p.Caller(w.Org, w.User, w.Key, w.IP)
	if err != nil {
		return providers.Target{}, nil, nil, err
	}
	return p.Standing(c, &wire.Request{Model: w.Model, Endpoint: w.Endpoint})
}

// Bounds returns the limits and spend caps that apply to a waiting call.
func (p *Policy) Bounds(w Waiter) ([]budget.Limit, []budget.Cap, error) {
	_, limits, caps, err := p.bounds(w)
	return limits, caps, err
}

// Endless is the wait for a limit that time alone does not reset.
const Endless = budget.Endless

// Wait returns the limit that the call has to wait for, and the longest wait if no other
// call takes its room; "" and 0 if there is none. The wait is 0 if open calls may free the
// room at any moment.
func (r *Room) Wait() (limit budget.Cause, wait time.Duration) {
	if r == nil || r.refused == nil {
		return "", 0
	}
	e := r.refused
	limit = (&Refusal{ExceededError: e}).Cause()
	switch {
	case e.Soon:
		return limit, 0
	case e.Binding.Never:
		return limit, Endless
	}
	return limit, e.Binding.Wait
}

// Tell writes the headers in which an answer reports the limits.
func (r *Room) Tell(h http.Header) {
	if r != nil && r.price != nil {
		TellLimits(h, &LimitReport{
			Statuses: r.Statuses, At: time.Now(), Price: r.price, Held: r.held, Standard: r.standard,
		})
	}
}
