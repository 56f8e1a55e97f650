package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget"
)

// StoreFailure is what becomes of an org's calls while the store is away.
type StoreFailure string

// The choices for calls while the store is away.
const (
	Deny  StoreFailure = "deny"  // refused; the zero value too
	Local StoreFailure = "local" // admitted within this process's share of each limit, charged later
	Allow StoreFailure = "allow" // admitted, charged later
)

// errAway says that the store was not even asked.
var errAway = fmt.Errorf("%w: it has not answered for a while", budget.ErrUnavailable)

// hold asks the store, unless it is known to be away; asked says so.
func (g *Guard) hold(ctx context.Context, p *Plan, who budget.Call) (h *budget.Hold, asked bool, err error) {
	if !g.circuit.ask(who.Org, time.Now()) {
		return nil, false, errAway
	}
	tags := budget.Tags(who.Org, p.Caps)
	ctx, cancel := g.health.bound(ctx, g.deadline, tags...)
	defer cancel()
	h, err = g.budget.Hold(ctx, budget.Terms{
		Limits: p.Limits, Caps: p.Caps, Call: who, Max: p.First, Expected: g.Expected(p),
	})
	g.circuit.told(p.Caller.Org, g.health.judge(ctx, err, tags...), time.Now())
	return h, true, err
}

// Reach runs one request to the store about a pool on behalf of an org, which ends when the store has
// not answered it for Options.StoreDeadline, nor a ping after it. While the store is known to be
// away it is not asked, and the error is budget.ErrUnavailable.
func (g *Guard) Reach(ctx context.Context, o *Org, pool string, request func(context.Context) error) error {
	if !g.circuit.ask(o.ID, time.Now()) {
		return errAway
	}
	ctx, cancel := g.health.bound(ctx, g.deadline, o.ID, pool)
	defer cancel()
	err := request(ctx)
	cause := context.Cause(ctx)
	if err == nil {
		g.circuit.told(o, nil, time.Now())
	} else if errors.Is(cause, errSilent) {
		g.circuit.told(o, cause, time.Now())
	}
	return err
}

// WithoutStore reports whether the org's live calls go on while the store is away.
func (o *Org) WithoutStore() bool { return o.OnStoreFailure == Local || o.OnStoreFailure == Allow }

// admit admits a live call without the store, as its org allows. All it can cost
// is in the journal before it is sent: nothing can be held later.
func (g *Guard) admit(ctx context.Context, p *Plan, who budget.Call) (*budget.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, g.deadline)
	defer cancel()
	terms := budget.Terms{Limits: p.Limits, Caps: p.Caps, Call: who, Max: p.Max}
	if p.Caller.Org.OnStoreFailure == Allow {
		return g.budget.Offline.AdmitAll(ctx, terms)
	}
	return g.budget.Offline.AdmitShare(ctx, terms, g.share)
}

// beginWithout is begin while the store is away, after a hold that may have been
// applied if the store was asked.
func (g *Guard) beginWithout(ctx context.Context, c *Call, who budget.Call, asked bool) (*Call, error) {
	mode := c.Caller.Org.OnStoreFailure
	h, err := g.admit(ctx, c.Plan, who)
	if err != nil {
		if asked {
			g.voidLate(ctx, who, c.Caps)
		}
		g.metrics.without.WithLabelValues(string(mode), "refused").Inc()
		return nil, c.away(err)
	}
	g.metrics.without.WithLabelValues(string(mode), "admitted").Inc()
	c.Hold = h
	c.held = c.Output
	c.Without = mode
	c.Result.Outcome = Unsent
	return c, nil
}

// away words a refusal by a share.
func (p *Plan) away(err error) error {
	var e *budget.ExceededError
	if !errors.As(err, &e) {
		return err
	}
	return &Refusal{ExceededError: e, Away: true, plan: p, Advice: " The limits cannot be checked at the moment, " +
		"and this is the part of the limit that this proxy lets through by itself."}
}

// StoreAway returns for how many orgs the store is known to be away.
func (g *Guard) StoreAway() int { return g.circuit.away() }
