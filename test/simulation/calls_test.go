package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/quota"
)

// liveCall runs a call like a proxy.
func (w *world) liveCall(p *process, o *org, took time.Duration) {
	w.do(p, func(ctx context.Context, d dice) {
		c := w.newCall(p, o, d)
		h, _ := w.hold(ctx, c)
		if h == nil {
			return
		}
		if grant := w.take(ctx, c, d); grant != nil || w.pool.ID == "" {
			w.forward(ctx, c, h, d, d.around(took))
			w.give(ctx, p, grant)
			return
		}
		w.giveBack(c, h)
	})
}

// handedOver runs a call whose end another process learns days later. No process renews its
// hold.
func (w *world) handedOver(p *process, o *org, took time.Duration) {
	w.do(p, func(ctx context.Context, d dice) {
		c := w.newCall(p, o, d)
		c.days = 5*took + time.Hour
		h, _ := w.hold(ctx, c)
		if h == nil {
			return
		}
		c.sent = true
		w.sleep(p, min(d.around(took), 5*took))
		c.live = false
		w.end(ctx, c, budget.Settle{Hold: budget.Lost(c.Call), Settlement: &budget.Settlement{Actual: amounts(c.actual)}})
	})
}

// take requests a call's share of the provider's quota; nil means that the call is not sent.
func (w *world) take(ctx context.Context, c *call, d dice) *quota.Grant {
	if w.pool.ID == "" {
		return nil
	}
	tokens := w.tokens(d, 0)
	for range 3 {
		once, cancel := context.WithTimeout(ctx, time.Second)
		g, err := c.p.queue.Quota().Take(once, quota.Request{
			Pool: poolID, ID: c.ID, Org: c.Org, User: c.User, Tokens: tokens, Priority: w.priority(d),
		})
		cancel()
		c.p.alive()
		switch {
		case err == nil && g.Permit() == nil:
			c.sending = w.send(c.p, tokens)
			return g
		case err == nil:
			_ = c.p.queue.Quota().Give(ctx, g, true)
			c.p.alive()
		default:
			w.note("%s call %s has no quota: %v", c.p.name, c.ID[20:], err)
			return nil
		}
	}
	return nil
}

// give returns a call's quota.
func (w *world) give(ctx context.Context, p *process, g *quota.Grant) {
	if g == nil {
		return
	}
	_ = p.queue.Quota().Give(ctx, g, false)
	p.alive()
}

// hold reserves a call's money like package guard; without a hold the call is not sent.
func (w *world) hold(ctx context.Context, c *call) (*budget.Hold, error) {
	once, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	h, err := w.asked(once, c)
	c.p.alive()
	switch {
	case err == nil:
		c.held, c.at = true, h.At
		w.note("%s call %s of %s holds %d", c.p.name, c.ID[20:], c.org.id, c.max)
		w.admitted(c)
		return h, nil
	case errors.Is(err, budget.ErrUnavailable):
		w.note("%s call %s of %s: no answer", c.p.name, c.ID[20:], c.org.id)
		_ = c.p.budget.Later(ctx, []budget.Settle{{Hold: budget.Lost(c.Call, c.caps...)}}, nil)
		c.p.alive()
		c.ended, c.void, c.kept = true, true, true
	default:
		w.note("%s call %s of %s is refused %d", c.p.name, c.ID[20:], c.org.id, c.max)
		c.ended, c.void = true, true
	}
	c.live = false
	return nil, err
}

func (w *world) asked(ctx context.Context, c *call) (*budget.Hold, error) {
	return c.p.budget.Hold(ctx, budget.Terms{
		Limits: c.limits, Caps: c.caps, Call: c.Call, Max: amounts(c.max), Expected: amounts(c.max / 2), Life: c.days,
	})
}

// forward sends a call that has a hold, and settles it.
func (w *world) forward(ctx context.Context, c *call, h *budget.Hold, d dice, took time.Duration) {
	c.sent = true
	if w.pool.ID != "" && w.refused(c.p, "m1") {
		c.sending.done = true
		w.giveBack(c, h)
		return
	}
	w.sleep(c.p, took/2)
	if took > lease/2 && d.chance(500) {
		w.grow(ctx, c, h, int64(d.IntN(20)))
	}
	w.sleep(c.p, took/2)
	st := &budget.Settlement{Actual: amounts(c.actual), Outcome: "completed"}
	if d.chance(50) {
		st, c.void, c.actual = nil, true, 0 // the provider refused it
	}
	c.live = false
	if c.sending != nil {
		c.sending.done = true
	}
	w.end(ctx, c, budget.Settle{Hold: h, Settlement: st})
}

// grow extends the hold of a continuing stream.
func (w *world) grow(ctx context.Context, c *call, h *budget.Hold, more int64) {
	once, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := c.p.budget.Extend(once, h, amounts(more))
	c.p.alive()
	if errors.Is(err, budget.ErrEnded) && !c.apart && !w.forgot(c) {
		w.fail("a running call keeps its hold", "call %s grows and is told that its hold has ended", c.ID[20:])
	}
	switch {
	case err == nil:
		c.max, c.most = c.max+more, c.most+more
	case errors.Is(err, budget.ErrUnavailable):
		c.most += more // it may have been applied
	}
}

// end settles a call in the store, or keeps the settlement for later.
func (w *world) end(ctx context.Context, c *call, e budget.Settle) {
	once, cancel := context.WithTimeout(ctx, time.Second)
	err := c.p.budget.SettleAll(once, []budget.Settle{e})[0].Err
	cancel()
	c.p.alive()
	if errors.Is(err, budget.ErrUnavailable) {
		err = c.p.budget.Later(ctx, []budget.Settle{e}, nil)
		c.p.alive()
		c.kept = true
	}
	if err != nil && !errors.Is(err, budget.ErrTooOld) {
		w.fail("ends are accepted", "call %s: %v", c.ID[20:], err)
	}
	c.ended, c.endedAt = true, time.Now()
	w.note("%s call %s ends at %d", c.p.name, c.ID[20:], c.actual)
}
