package budget

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Cap bounds what all orgs together spend: at one provider, or in the whole
// deployment. It is held, settled, renewed and expired like an org's limits and
// next to them, and has no ledger: every charge stands in its org's.
type Cap struct {
	Provider string  // its id; empty: the deployment
	Limits   []Limit // their Subject is Org, which here is everybody
}

// capScope begins what stands where org ids do in the keys of caps; no org may
// be called so.
const capScope = "cap:"

// scope is what the cap's keys share instead of an org: a hash tag of its own.
func (c Cap) scope() string {
	if c.Provider == "" {
		return capScope + "deployment"
	}
	return capScope + "provider:" + c.Provider
}

// Tags are the hash tags of the caps' keys and of the org's, for Ping.
func Tags(org string, caps []Cap) []string {
	tags := make([]string, 0, len(caps)+1)
	tags = append(tags, org)
	for _, c := range caps {
		tags = append(tags, c.scope())
	}
	return tags
}

// String names the cap for operators.
func (c Cap) String() string {
	if c.Provider == "" {
		return "the deployment"
	}
	return "provider " + c.Provider
}

func isCap(org string) bool { return strings.HasPrefix(org, capScope) }

// of is a call as the cap knows it: not whose it is.
func (c Cap) of(call Call) Call {
	return Call{
		ID: call.ID, Attempt: call.Attempt, Org: c.scope(), Model: call.Model, Provider: call.Provider,
		Endpoint: call.Endpoint,
	}
}

// HoldCapped is Hold under spend caps as well: all of them, or nothing. The
// org's limits come first, so that a call which they refuse never touches what
// all orgs share. Then each cap is one more round trip, in the order given. A
// cap's refusal is an *ExceededError with its Cap. What is done with the Hold is
// done under the caps too.
//
// When an error wraps ErrUnavailable give everything back with VoidLost and the
// same caps. Dying on the way leaves holds that expire: the org's is given back when
// a cap has not admitted the call, which was not sent then; a cap counts too much,
// never too little.
func (s *Store) HoldCapped(ctx context.Context, limits []Limit, caps []Cap, c Call, most, expected Amounts) (*Hold, error) {
	return s.holdCapped(ctx, 0, limits, caps, c, most, expected)
}

// HoldFor is HoldCapped for a call whose end another process may learn, hours
// later: its lease is life, at most 30 days, and nobody renews it. Whoever learns
// the end ends Lost of the same call and caps, which needs nothing of this
// process.
func (s *Store) HoldFor(ctx context.Context, life time.Duration, limits []Limit, caps []Cap, c Call, most, expected Amounts) (*Hold, error) {
	return s.holdCapped(ctx, min(max(life, s.opts.Lease), recordLife-48*time.Hour), limits, caps, c, most, expected)
}

func (s *Store) holdCapped(ctx context.Context, life time.Duration, limits []Limit, caps []Cap, c Call, most, expected Amounts) (*Hold, error) {
	h, err := s.hold(ctx, life, limits, caps, c, most, expected)
	s.metrics.held(err)
	if err != nil {
		return nil, err
	}
	for _, spend := range caps {
		part, err := s.hold(ctx, life, spend.Limits, nil, spend.of(c), most, expected)
		if err != nil {
			return nil, s.uncap(ctx, h, spend, err)
		}
		s.metrics.capped(spend, part.Statuses)
		h.caps = append(h.caps, part)
	}
	return h, nil
}

// uncap gives back what was held before a cap could not be.
func (s *Store) uncap(ctx context.Context, h *Hold, spend Cap, why error) error {
	if errors.Is(why, ErrUnavailable) {
		return why
	}
	if err := s.Void(ctx, h); err != nil {
		return err
	}
	s.metrics.capRefused(spend, why)
	return h.cappedBy(spend, why, h.Max)
}

// cappedBy words a cap's refusal of so much: Statuses are the org's own, without
// it, because those of a cap tell of other orgs.
func (h *Hold) cappedBy(spend Cap, why error, most Amounts) error {
	var e *ExceededError
	if !errors.As(why, &e) {
		return why
	}
	e.Cap, e.Statuses = &spend, nil
	for i, st := range h.Statuses {
		e.Statuses = append(e.Statuses, st.without(h.limits[i].Metric.amountOf(most)))
	}
	return why
}

// without is a status after so much was given back.
func (st Status) without(n int64) Status {
	st.Used, st.Held = max(0, st.Used-n), max(0, st.Held-n)
	st.Remaining = max(0, st.Amount-st.Used)
	return st
}

// extendCaps grows the caps' holds to new totals, before the hold itself grows:
// what they then hold too much returns when the call ends.
func (s *Store) extendCaps(ctx context.Context, h *Hold, most Amounts) error {
	for _, part := range h.caps {
		more := Amounts{Cost: max(0, most.Cost-part.Max.Cost), Tokens: max(0, most.Tokens-part.Max.Tokens)}
		if more == (Amounts{}) {
			continue
		}
		if _, err := s.Extend(ctx, part, more); err != nil {
			s.metrics.capRefused(capOf(part), err)
			return h.cappedBy(capOf(part), err, Amounts{})
		}
	}
	return nil
}

// capOf is the cap that a part of a hold belongs to.
func capOf(part *Hold) Cap {
	provider, ok := strings.CutPrefix(part.Call.Org, capScope+"provider:")
	if !ok {
		provider = ""
	}
	return Cap{Provider: provider, Limits: part.limits}
}

// uncapped are the parts of a call that the caps are not asked for now.
func (b *binder) uncapped(caps []Cap, c Call, most Amounts) ([]*Hold, error) {
	var parts []*Hold
	for _, spend := range caps {
		part, err := b.prepare(spend.Limits, spend.of(c), most, most)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// PeekCap tells where a cap's limits stand, and changes nothing.
func (s *Store) PeekCap(ctx context.Context, c Cap) ([]Status, error) {
	return s.Peek(ctx, c.Limits, c.of(Call{}))
}
