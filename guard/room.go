package guard

import (
	"context"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// Waiter is a call that waits, as far as limits ask: whose it is, and what it will hold.
type Waiter struct {
	Org, User, Key, IP string
	Model              string
	Endpoint           wire.Endpoint
	Want               budget.Amounts
}

// Room is where the limits of a call that waits stand now.
type Room struct {
	Statuses []budget.Status
	refused  *budget.ExceededError // nil: the call is within all of them
	price    *pricing.Price        // nil when the model has none any more
	held     pricing.Nano
}

// Room reads where the limits and spend caps of a call that waits stand.
func (g *Guard) Room(ctx context.Context, w Waiter) (*Room, error) {
	return g.policy.Load().Room(ctx, g.budget, w)
}

// Room is Guard.Room for those who have no Guard.
func (p *Policy) Room(ctx context.Context, store *budget.Store, w Waiter) (*Room, error) {
	target, limits, caps, err := p.bounds(w)
	if err != nil {
		return nil, err
	}
	r := &Room{held: w.Want.Cost}
	if price, _, err := p.priceOf(w.Endpoint, target, now()); err == nil {
		r.price = price
	}
	who := budget.Call{Org: w.Org, User: w.User, Key: w.Key, IP: w.IP, Model: w.Model, Provider: target.Provider.ID}
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

// Bounds are the limits and spend caps that a call which waits is under.
func (p *Policy) Bounds(w Waiter) ([]budget.Limit, []budget.Cap, error) {
	_, limits, caps, err := p.bounds(w)
	return limits, caps, err
}

// Endless is the wait for a limit that time alone does not empty.
const Endless = budget.Endless

// Wait is the limit that the call has to wait for, and for how long at the most, if no other
// takes its room: "" and 0 when there is none. A spend cap is called "cap": which one is
// for operators only. The wait is 0 when open calls may free the room at any moment.
func (r *Room) Wait() (limit string, wait time.Duration) {
	if r == nil || r.refused == nil {
		return "", 0
	}
	e := r.refused
	limit = "limit:" + e.Binding.LimitID
	if e.Cap != nil {
		limit = "cap"
	}
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
		TellLimits(h, r.Statuses, r.price, r.held, budget.Amounts{})
	}
}
