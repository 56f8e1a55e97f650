package budget

import (
	"context"
	"errors"
	"strings"
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

// PeekCap tells where a cap's limits stand, and changes nothing.
func (s *Store) PeekCap(ctx context.Context, c Cap) ([]Status, error) {
	return s.Peek(ctx, c.Limits, c.of(Call{}))
}
