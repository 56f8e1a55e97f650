package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/pricing"
)

// SharedHolds are holds with Terms.Life, which any process may end.
type SharedHolds struct {
	rdb    redisconn.DB
	leases *leases
	binder binder
}

// Reopen returns an open hold that any process took with Terms.Life, so that this one can extend,
// prolong and end it. Of its call, c needs ID, Attempt, Org and Part. rules returns the limits and spend
// caps that apply to the call now: limits that were changed since it was held do not refuse extensions,
// and new ones do not count it. nil is for holds that are not extended.
//
// ErrEnded means that there is no such open hold: Outcome says how it ended. Errors of rules are returned.
func (s *SharedHolds) Reopen(
	ctx context.Context, c ledger.Call, rules func(ledger.Call) ([]Limit, []Cap, error),
) (*Hold, error) {
	if err := validateCall(c); err != nil {
		return nil, err
	}
	h, err := s.open(ctx, c.Place(), c.HoldID())
	if err != nil {
		return nil, err
	}
	var limits []Limit
	var caps []Cap
	if rules != nil {
		limits, caps, err = rules(h.Call)
		if err != nil {
			return nil, err
		}
	}
	if err := s.binder.rebind(h, limits); err != nil {
		return nil, err
	}
	for _, scope := range h.scopes {
		var own []Limit
		for _, spend := range caps {
			if spend.scope() == scope {
				own = spend.Limits
			}
		}
		part, err := s.open(ctx, scope, h.ID)
		if errors.Is(err, ErrEnded) { // ending it does nothing twice
			part, err = Lost(Cap{}.of(h.Call)), nil
			part.Call.Org = scope
		}
		if err == nil {
			err = s.binder.rebind(part, own)
		}
		if err != nil {
			return nil, err
		}
		h.caps = append(h.caps, part)
	}
	return h, nil
}

// open reads a hold in a place of an org or in that of a cap, without its limits.
func (s *SharedHolds) open(ctx context.Context, place, id string) (*Hold, error) {
	pipe := s.rdb.Pipeline()
	record, ends := pipe.HGet(ctx, HoldsKey(place), id), pipe.ZScore(ctx, ledger.Key(place, "leases"), id)
	_ = pipe.Exec(ctx) // each command has its own error
	text, err := record.Result()
	if redisconn.IsNil(err) {
		return nil, fmt.Errorf("hold %s: %w", id, ErrEnded)
	}
	if err != nil {
		return nil, storeError("read hold", err)
	}
	h, ok := decodeRecord(place, id, text)
	n, err := integers(strings.SplitN(text, "|", 2)[0]) // at, cost, expected, tokens, expected
	if !ok || err != nil || len(n) != 5 {
		return nil, fmt.Errorf("budget: the record of hold %s is not understood", id)
	}
	h.At = time.UnixMicro(n[0])
	h.Max = Amounts{Cost: pricing.Nano(n[1]), Tokens: n[3]}
	h.Expected = Amounts{Cost: pricing.Nano(n[2]), Tokens: n[4]}
	h.Ends = time.UnixMicro(int64(ends.Val()))
	return h, nil
}

// rebind gives a hold that was read from the store its limits, in the order of its states. A state
// without a limit gets one that refuses nothing.
func (b binder) rebind(h *Hold, limits []Limit) error {
	own, states, err := b.bind(limits, h.Call)
	if err != nil {
		return err
	}
	h.limits = make([]Limit, len(h.states))
	for i := range h.states {
		st := &h.states[i]
		at := slices.IndexFunc(states, func(s state) bool { return s.Key == st.Key })
		if at >= 0 {
			h.limits[i] = own[at]
			continue
		}
		h.limits[i] = Limit{ID: "-", Metric: st.Metric, Mode: Shadow, Shape: Shape{Amount: MaxAmount}}
	}
	return nil
}

// Prolong makes the lease of a hold that was taken with Terms.Life, and read by Reopen, end at least
// life from now. It never shortens it. ErrEnded means that the hold has ended or expired.
func (s *SharedHolds) Prolong(ctx context.Context, h *Hold, life time.Duration) error {
	life = s.leases.of(life)
	if !h.Ends.Before(s.leases.clock.now().Add(life)) {
		return nil
	}
	for _, part := range append(slices.Clone(h.caps), h) { // the org's last: it counts
		keys, args := s.leases.renewArgs(renewal{part.Call.Place(), []*Hold{part}}, life)
		reply, err := s.leases.runner.run(ctx, s.leases.runner.scripts.renew, keys, args)
		if err != nil {
			return err
		}
		n, err := integers(reply)
		if err != nil || len(n) != 3 {
			return fmt.Errorf("budget: prolong: reply %.80q is not understood", reply)
		}
		if n[2] == 0 {
			return fmt.Errorf("prolong %s: %w", part.ID, ErrEnded)
		}
		part.Ends = time.UnixMicro(n[0]).Add(life)
	}
	return nil
}

// How a hold ended.
const (
	EndedSettled = "settled"
	EndedVoided  = "voided"
	EndedExpired = "expired" // charged, until a late settle corrects it
)

// Outcome is how a hold ended.
type Outcome struct {
	How              string // EndedSettled, EndedVoided, EndedExpired; empty: unknown
	Charged, Overrun pricing.Nano
	At               time.Time // zero after a void
	Hold             *Hold     // of an expired one, for a late settle; otherwise nil
}

// Outcome returns how the hold of a call with a Part ended. The store remembers it for Options.Horizon at
// least; How is empty afterwards, for open holds, and for calls that were never held.
func (s *SharedHolds) Outcome(ctx context.Context, c ledger.Call) (Outcome, error) {
	if err := validateCall(c); err != nil {
		return Outcome{}, err
	}
	text, err := s.rdb.HGet(ctx, ledger.Key(c.Place(), chunkOf(c)), c.HoldID()).Result()
	if redisconn.IsNil(err) {
		return Outcome{}, nil
	}
	if err != nil {
		return Outcome{}, storeError("read outcome", err)
	}
	kind, rest, _ := strings.Cut(text, ",")
	n, err := integers(strings.SplitN(rest, "|", 2)[0])
	switch {
	case kind == "V":
		return Outcome{How: EndedVoided}, nil
	case err != nil:
	case kind == "S" && len(n) == 3:
		return Outcome{EndedSettled, pricing.Nano(n[0]), pricing.Nano(n[1]), time.UnixMicro(n[2]), nil}, nil
	case kind == "X" && len(n) == 3: // charged, most, at
		h, ok := decodeRecord(c.Place(), c.HoldID(), rest)
		if ok {
			h.Max.Cost = pricing.Nano(n[1])
			for _, scope := range h.scopes {
				part := Lost(Cap{}.of(h.Call))
				part.Call.Org = scope
				h.caps = append(h.caps, part)
			}
			return Outcome{EndedExpired, pricing.Nano(n[0]), 0, time.UnixMicro(n[2]), h}, nil
		}
	}
	return Outcome{}, fmt.Errorf("budget: the outcome %.40q of call %s is not understood", text, c.ID)
}
