package budget

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
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
	return s.cappedBy(h, spend, why, h.Max)
}

// cappedBy words a cap's refusal of so much: Statuses are the org's own, without
// it, because those of a cap tell of other orgs.
func (s *Store) cappedBy(h *Hold, spend Cap, why error, most Amounts) error {
	var e *ExceededError
	if !errors.As(why, &e) {
		return why
	}
	s.metrics.capped(spend, e.Statuses)
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

// admitted reports whether all caps in the record of a hold have the call. What they
// had is forgotten after the horizon: a hold that is found later counts as admitted.
func (s *Store) admitted(ctx context.Context, h *Hold, leaseEnd int64) (bool, error) {
	if len(h.scopes) == 0 || s.now().UnixMicro()-leaseEnd > s.opts.Horizon.Microseconds() {
		return true, nil
	}
	pipe := s.rdb.Pipeline()
	var open []*redis.BoolCmd
	var done []*redis.StringCmd
	for _, scope := range h.scopes {
		open = append(open, pipe.HExists(ctx, key(scope, "holds"), h.ID))
		done = append(done, pipe.HGet(ctx, key(scope, h.Call.chunk()), h.ID))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	all := true
	for i := range h.scopes {
		has, err := open[i].Result()
		tomb, failed := done[i].Result()
		if errors.Is(failed, redis.Nil) {
			failed = nil
		}
		if err := cmp.Or(err, failed); err != nil {
			return false, storeError("sweep", err)
		}
		all = all && (has || tomb != "" && tomb != voidTomb)
	}
	return all, nil
}

// voidTomb is what is left of a hold that was given back.
const voidTomb = "V"

// neverAdmitted gives back what caps hold for a call that others have not admitted,
// and keeps those from admitting it later.
func (s *Store) neverAdmitted(ctx context.Context, h *Hold) error {
	var parts []Settle
	for _, scope := range h.scopes {
		c := h.Call
		c.Org = scope
		parts = append(parts, Settle{Hold: Lost(c)})
	}
	for _, done := range s.endFlight(ctx, parts) {
		if done.Err != nil {
			return done.Err
		}
	}
	s.opts.Log.Info("hold expired before its spend caps admitted the call: it is given back",
		"org", h.Call.Org, "call", h.Call.ID, "attempt", h.Call.Attempt)
	return nil
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
			return s.cappedBy(h, capOf(part), err, Amounts{})
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

// capsEnded is the first reason to try again.
func (s *Store) capsEnded(h *Hold, done []Settled) error {
	for _, d := range done {
		if errors.Is(d.Err, ErrTooOld) { // it expired long ago, or was lost with the store
			s.opts.Log.Warn("a spend cap does not count a call that was settled too late", "call", h.Call.ID)
			continue
		}
		if d.Err != nil {
			return d.Err
		}
	}
	return nil
}

// endCaps ends what the caps hold for the calls whose own end the store has, in
// one flight; own is what became of those. It comes second because a cluster
// carries one flight out in any order: a call that is given back under a cap and
// never in its org would be charged there and missing here. Whoever dies in
// between leaves holds of the caps that expire.
func (s *Store) endCaps(ctx context.Context, endings []Settle, own []Settled) []Settled {
	var parts []Settle
	for i, e := range endings {
		for _, part := range e.Hold.caps {
			s.untrack(part.Call.Org, part.ID)
			if own[i].known() {
				parts = append(parts, Settle{part, e.Settlement})
			}
		}
	}
	if len(parts) == 0 {
		return own
	}
	done := s.endFlight(ctx, parts)
	for i, e := range endings {
		if !own[i].known() {
			continue
		}
		n := len(e.Hold.caps)
		if own[i].Err == nil {
			own[i].Err = s.capsEnded(e.Hold, done[:n])
		}
		done = done[n:]
	}
	return own
}

// known reports whether the store has the end, be it on the reconciliation list.
func (d Settled) known() bool { return d.Err == nil || errors.Is(d.Err, ErrTooOld) }

// uncapped are the parts of a call that the caps are not asked for now.
func (s *Store) uncapped(caps []Cap, c Call, most Amounts) ([]*Hold, error) {
	var parts []*Hold
	for _, spend := range caps {
		part, err := s.prepare(spend.Limits, spend.of(c), most, most)
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
