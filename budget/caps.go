package budget

import (
	"context"
	"errors"
	"strings"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Cap limits what all orgs together spend, at one provider or in the whole deployment. It is held,
// settled, renewed and expired like an org's limits, together with them. It has no ledger: every
// charge is in its org's.
type Cap struct {
	Provider string  // its id; empty: the deployment
	Limits   []Limit // their Subject is Org, which here means all callers
}

// capScope is the prefix that replaces an org id in the keys of caps; org ids must not begin with
// it.
const capScope = "cap:"

// scope replaces the org in the cap's keys and serves as their hash tag.
func (c Cap) scope() string {
	if c.Provider == "" {
		return capScope + "deployment"
	}
	return capScope + "provider:" + c.Provider
}

// Tags returns the hash tags of the keys of a call with a Part, and of those of the caps, for Ping.
func Tags(c ledger.Call, caps []Cap) []string {
	tags := make([]string, 0, len(caps)+1)
	tags = append(tags, c.Place())
	for _, c := range caps {
		tags = append(tags, c.scope())
	}
	return tags
}

// String returns the cap's name for operators.
func (c Cap) String() string {
	if c.Provider == "" {
		return "the deployment"
	}
	return "provider " + c.Provider
}

// unlisted reports whether the keys of a scope are those of a spend cap or a [Limiter], which have no
// ledger.
func unlisted(org string) bool {
	return strings.HasPrefix(org, capScope) || strings.HasPrefix(org, limiterScope)
}

// of returns the call as the cap sees it, without org, user and key.
func (c Cap) of(call ledger.Call) ledger.Call {
	return ledger.Call{
		ID: call.ID, Attempt: call.Attempt, Org: c.scope(), Model: call.Model, Provider: call.Provider,
		Endpoint: call.Endpoint,
	}
}

// uncap returns what was already held when a cap refused or failed.
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

// cappedBy converts a cap's refusal: Statuses are those of the org, without the returned amounts,
// because the statuses of a cap reveal the usage of other orgs.
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

// without returns the status after n was given back.
func (st Status) without(n int64) Status {
	st.Used, st.Held = max(0, st.Used-n), max(0, st.Held-n)
	st.Remaining = max(0, st.Amount-st.Used)
	return st
}

// extendCaps grows the caps' holds to new totals before the hold itself grows. If that fails, the
// excess is returned when the call ends.
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

// capOf returns the cap that a part of a hold belongs to.
func capOf(part *Hold) Cap {
	provider, ok := strings.CutPrefix(part.Call.Org, capScope+"provider:")
	if !ok {
		provider = ""
	}
	return Cap{Provider: provider, Limits: part.limits}
}

// PeekCap returns the statuses of a cap's limits and changes nothing.
func (s *Store) PeekCap(ctx context.Context, c Cap) ([]Status, error) {
	return s.Peek(ctx, c.Limits, c.of(ledger.Call{}))
}
