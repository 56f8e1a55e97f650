package budget

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Terms describe a hold: the limits, the call and the amounts.
type Terms struct {
	// Limits are the org's, followed by the counters of its brakes. Those that are Off, or whose Only
	// names another subject, are ignored; Models and Endpoints are for the caller to match. The hold
	// keeps the list, so it must not be modified.
	Limits []Limit
	Caps   []Cap // shared by all orgs
	Call   ledger.Call
	Max    Amounts // what is held
	// Expected is the probable cost of the call, for Options.ExpiredCharge.
	Expected Amounts
	// Life is for a call whose end another process may learn hours later: the lease is Life, at
	// most 30 days, and is not renewed. The process that learns the end passes Lost of the same
	// call and caps, and needs nothing from this process. 0 means Options.Lease, renewed until the
	// hold ends.
	Life time.Duration
}

// under returns the terms of a cap for the call.
func (t *Terms) under(spend Cap) *Terms {
	return &Terms{Limits: spend.Limits, Call: spend.of(t.Call), Max: t.Max, Expected: t.Expected, Life: t.Life}
}

// Hold takes Max from every limit that applies to the call and from its spend caps, or nothing, and
// keeps it until the hold ends. Later operations on the Hold apply to the caps too.
//
// The org's limits come first, so that a call which they refuse never touches what all orgs share.
// Each cap then takes one more round trip, in the order given.
//
// A call over a limit gets *ExceededError, with its Cap set if a cap refused. ErrEnded means that
// this attempt has already been settled or voided. If an error wraps ErrUnavailable, the hold may
// have been taken: return it with VoidLost and the same caps. If the process dies in between, the
// holds expire: the org's hold is returned if a cap has not admitted the call, because it was not
// sent then; a cap counts too much, never too little. Repeating a hold takes nothing twice.
func (s *Store) Hold(ctx context.Context, t Terms) (*Hold, error) {
	if t.Life != 0 {
		t.Life = s.leases.of(t.Life)
	}
	h, err := s.holdOwn(ctx, &t)
	s.metrics.held(err)
	if err != nil {
		return nil, err
	}
	for _, spend := range t.Caps {
		part, err := s.holdOwn(ctx, t.under(spend))
		if err != nil {
			return nil, s.uncap(ctx, h, spend, err)
		}
		s.metrics.capped(spend, part.Statuses)
		h.caps = append(h.caps, part)
	}
	return h, nil
}

// holdOwn is Hold without the caps. The record names the caps that have to admit the call
// afterwards.
func (s *Store) holdOwn(ctx context.Context, t *Terms) (*Hold, error) {
	h, err := s.binder.prepare(t)
	if err != nil {
		return nil, err
	}
	for _, spend := range t.Caps {
		h.scopes = append(h.scopes, spend.scope())
	}
	announced := s.leases.announce(ctx, h.Call.Place())
	a, err := s.askHold(ctx, h, t.Life)
	announced()
	if err != nil {
		return nil, err
	}
	switch a.verdict {
	case "held":
		h.At = a.at()
		s.leases.begin(h, t.Life)
		statuses, err := s.binder.statuses(h, a, h.Max.of)
		h.tell(statuses)
		s.metrics.refused(t.Call.Org, h.Statuses) // by limits in shadow mode
		h.noteShadow()
		return h, err
	case "again":
		h.At = a.at()
		s.leases.begin(h, t.Life)
		statuses, err := s.Peek(ctx, t.Limits, t.Call)
		h.tell(statuses)
		return h, err
	case "refused":
		return nil, s.refusal(h, a, h.Max)
	case "done":
		return nil, fmt.Errorf("hold %s: %w", h.ID, ErrEnded)
	default:
		return nil, fmt.Errorf("budget: hold: unknown verdict %q", a.verdict)
	}
}

// askHold runs the hold script, and repeats it when the org's data were lost or have no mark.
func (s *Store) askHold(ctx context.Context, h *Hold, life time.Duration) (answer, error) {
	for try := 0; ; try++ {
		a, err := s.runner.askFor(ctx, s.runner.scripts.hold, func(now time.Time) (*request, error) {
			return s.holdRequest(ctx, h, life, now)
		})
		if err != nil || a.verdict != "mark" {
			return a, err
		}
		if try == 2 {
			return a, fmt.Errorf("budget: hold %s: the org's mark keeps changing", h.ID)
		}
		if err := s.DataLoss.SettleMark(ctx, h.Call.Place(), a.head[1]); err != nil {
			return a, err
		}
	}
}

var recordLifeArg any = recordLife.Milliseconds()

// holdRequest returns the request for a hold at the given time.
func (s *Store) holdRequest(ctx context.Context, h *Hold, life time.Duration, now time.Time) (*request, error) {
	limits, err := limitUses(h.states, now)
	if err != nil {
		return nil, err
	}
	c := common{
		script: s.runner.scripts.hold, now: s.clock.given(), place: h.Call.Place(), chunk: s.settler.chunks.of(h.Call),
		lease: s.leases.lifeArg,
	}
	c.mark = s.DataLoss.Mark(c.place)
	if life > 0 {
		c.lease = life.Microseconds()
	}
	for i := range limits {
		use, l := &limits[i], &h.limits[i]
		use.enforced, use.amount, use.cost = enforced, l.Shape.Amount, l.takes(&h.Call, h.Max)
		if l.Mode == Shadow {
			use.enforced = notEnforced
		}
		if len(l.Raises) > 0 {
			use.amount, _ = l.amountAt(now)
		}
		if c.mark > 0 && !l.counts.only && !closedUntil(s.DataLoss, c.place, l, now).IsZero() {
			use.amount = closedAmount
		}
	}
	r := newRequest(ctx, s.runner.money, c, h.ID, limits)
	r.hold = &holdRequest{amountsText(h.Max, h.Expected), h.about()}
	return r, nil
}

// limitUses returns the limits in the form that scripts take at the given time.
func limitUses(states []state, now time.Time) ([]limitUse, error) {
	out := make([]limitUse, len(states))
	for i := range states {
		st := &states[i]
		use := &out[i]
		use.name, use.kind, use.p1, use.p2 = st.Key, st.Kind, st.P1, st.P2
		if st.Kind == "c" {
			text, _, err := st.params(now)
			if err != nil {
				return nil, err
			}
			use.p1, use.p2 = text, ""
		}
	}
	return out, nil
}

const closedAmount = -1 // admits nothing

// keys returns the keys with these names in the call's place, followed by those of the hold's limits.
func (h *Hold) keys(names ...string) []string {
	return stateKeys(h.Call.Place(), h.states, names...)
}

func stateKeys(place string, states []state, names ...string) []string {
	prefix := ledger.Key(place, "")
	size := (len(names) + len(states)) * len(prefix)
	for _, name := range names {
		size += len(name)
	}
	for i := range states {
		size += len(states[i].Key)
	}
	var all strings.Builder // one allocation for all keys
	all.Grow(size)
	keys := make([]string, 0, len(names)+len(states))
	add := func(name string) {
		from := all.Len()
		all.WriteString(prefix)
		all.WriteString(name)
		keys = append(keys, all.String()[from:])
	}
	for _, name := range names {
		add(name)
	}
	for i := range states {
		add(states[i].Key)
	}
	return keys
}

var enforced, notEnforced any = 1, 0

// limitArgs appends the arguments of extend per limit. It passes pointers, because converting the
// values to interfaces would allocate.
func (h *Hold) limitArgs(args []any, now time.Time, a Amounts) ([]any, error) {
	wants := make([]int64, len(h.states))
	for i := range h.states {
		st, l := &h.states[i], &h.limits[i]
		p1, p2 := &st.P1, &st.P2
		if st.Kind == "c" {
			text, _, err := st.params(now)
			if err != nil {
				return nil, err
			}
			p1, p2 = &text, new(string)
		}
		enforce := enforced
		if l.Mode == Shadow {
			enforce = notEnforced
		}
		wants[i] = l.takes(&h.Call, a)
		amount := &l.Shape.Amount
		if len(l.Raises) > 0 {
			raised, _ := l.amountAt(now)
			amount = &raised
		}
		args = append(args, &st.Kind, enforce, amount, &wants[i], p1, p2)
	}
	return args, nil
}

// refusal decodes a refused hold or extension that requested these amounts.
func (s *Store) refusal(h *Hold, a answer, want Amounts) error {
	statuses, err := s.binder.statuses(h, a, want.of)
	if err != nil {
		return err
	}
	for i := range statuses {
		statuses[i].closed(closedUntil(s.DataLoss, h.Call.Place(), &h.limits[i], a.at()), a.at())
	}
	s.metrics.refused(h.Call.Org, statuses)
	e := exceeded(h.limits, statuses, want)
	e.Statuses = statuses[:told(h.limits)]
	return e
}

// Extend grows an open hold by more, in all its limits or in none; the addition counts from now. A
// call that no longer fits gets *ExceededError and keeps what it has. ErrEnded means that the hold
// has expired or was ended. Repeating a failed Extend adds nothing twice.
func (s *Store) Extend(ctx context.Context, h *Hold, more Amounts) ([]Status, error) {
	if err := more.validate("extension"); err != nil {
		return nil, err
	}
	most, expected := h.Max.add(more), h.Expected.add(more)
	if err := most.validate("hold"); err != nil {
		return nil, err
	}
	if err := s.extendCaps(ctx, h, most); err != nil {
		return nil, err
	}
	a, err := s.runner.ask(ctx, s.runner.scripts.extend, func(now time.Time) ([]string, []any, error) {
		args, err := h.limitArgs([]any{s.clock.given(), h.ID, amountsText(most, expected), recordLifeArg}, now, most)
		return h.keys("holds"), args, err
	})
	if err != nil {
		return nil, err
	}
	switch a.verdict {
	case "held":
		h.Max, h.Expected = most, expected
		statuses, err := s.binder.statuses(h, a, more.of)
		h.tell(statuses)
		h.noteShadow()
		return h.Statuses, err
	case "refused":
		return nil, s.refusal(h, a, more)
	case "gone":
		return nil, fmt.Errorf("extend %s: %w", h.ID, ErrEnded)
	default:
		return nil, fmt.Errorf("budget: extend: unknown verdict %q", a.verdict)
	}
}
