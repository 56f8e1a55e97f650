package guard

import (
	"context"
	"errors"
	"math"

	"github.com/llmguard/llmguard/internal/wire"
)

// beginOr is begin, except that a call that is over a limit is begun with the downgrade
// model of its org if that fits. On error nothing is held, and the error is the one of the
// two that passes sooner. A job stays in the pool whose quota it was given.
func (ad *admission) beginOr(ctx context.Context, p *Plan, a *Attempt) (*Call, error) {
	call, err := ad.begin(ctx, p, a)
	var refused *Refusal
	if err == nil || !errors.As(err, &refused) || refused.Away {
		return call, err
	}
	other := ad.plans.cheaper(ctx, p)
	if other == nil || a.JobID != "" && other.Target.Pool != p.Target.Pool {
		return nil, err
	}
	next := *a
	next.Number++
	call, otherErr := ad.begin(ctx, other, &next)
	if otherErr == nil {
		return call, nil
	}
	var again *Refusal
	if refused.Final() && errors.As(otherErr, &again) && !again.Final() {
		return nil, otherErr
	}
	return nil, err
}

// Check is the plan's Check, except that it also passes if the call fits with the org's
// downgrade model.
func (pl *Planner) Check(ctx context.Context, p *Plan) error {
	err := p.Check()
	if err == nil {
		return nil
	}
	if other := pl.cheaper(ctx, p); other != nil && other.Check() == nil {
		return nil
	}
	return err
}

// cheaper returns the plan for the same call with the org's downgrade model; nil if there
// is none, or if it may not be used or costs no less.
func (pl *Planner) cheaper(ctx context.Context, p *Plan) *Plan {
	name := p.Caller.Org.Downgrade[p.Request.Model]
	if name == "" || p.Request.Form != nil || p.instead != "" {
		return nil
	}
	r, err := wire.ScanFor(p.Request.Endpoint, name, p.Request.Body,
		wire.Limits{MaxDepth: math.MaxInt32, MaxTokens: math.MaxInt32}) // already scanned within its bounds
	if err != nil {
		return nil
	}
	r.Betas = p.Request.Betas
	other, err := pl.PrepareKept(ctx, p.Caller, r)
	if err != nil {
		pl.log.Warn("downgrade model not usable", "org", p.Caller.Org.ID, "model", name, "err", err)
		return nil
	}
	if other.Max.Cost >= p.Max.Cost {
		return nil
	}
	other.instead = p.Request.Model
	return other
}
