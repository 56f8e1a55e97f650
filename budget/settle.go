package budget

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/pricing"
)

// Settlement is how a call ended and what it cost.
type Settlement struct {
	Actual      Amounts
	Usage       pricing.Usage
	Split       pricing.Split // of Actual.Cost; ignored when it adds up to something else
	Estimated   bool          // Actual is our estimate, not the provider's word
	Outcome     string
	Status      int // HTTP status of the provider, 0 if there was none
	UpstreamID  string
	ServiceTier string

	// Quota is how many tokens were booked on the provider's quota; Class is async
	// or batch for such a job; Stream says that the answer was one of events.
	Quota  int64  `json:",omitzero"`
	Class  string `json:",omitzero"`
	Stream bool   `json:",omitzero"`

	Waited, Took time.Duration
}

// Receipt is what the ledger says of a settled call.
type Receipt struct {
	Charged  pricing.Nano
	Overrun  pricing.Nano // the part of Charged above what was held
	Replayed bool         // it was settled before; Charged is what was charged then
	Late     bool         // its hold had expired, was voided or lost; the difference is charged
	At       time.Time
}

// Settle replaces the hold by what the call cost, and writes the ledger. What
// was held too much goes back to where it was taken, newest first, unless that
// place has left its window; what the call cost beyond the hold is charged now,
// even over the limit. A repeated Settle charges nothing and returns the first
// one's receipt.
//
// A hold the store no longer knows is charged in full within Options.Horizon of
// its admission, and put on the reconciliation list later (ErrTooOld). An error
// with a receipt says that only a spend cap has still to be settled: try again.
func (s *Store) Settle(ctx context.Context, h *Hold, st Settlement) (Receipt, error) {
	if err := st.Actual.validate("charge"); err != nil {
		return Receipt{}, err
	}
	s.untrack(h.Call.Org, h.ID)
	e, began := Settle{h, &st}, s.now()
	r, err := s.settle(ctx, e)
	done := s.endCaps(ctx, []Settle{e}, []Settled{{r, err}})[0]
	s.answered(e, began, done.Err)
	return done.Receipt, done.Err
}

// settle settles the hold itself, without the caps.
func (s *Store) settle(ctx context.Context, e Settle) (Receipt, error) {
	a, err := s.end(ctx, s.scripts.settle, e.ending())
	if err != nil {
		return Receipt{}, err
	}
	return s.receipt(a, e.Hold, e.Settlement.Estimated)
}

func settling(h *Hold, st *Settlement) settleArgs {
	return settleArgs{
		call: h.Call, id: h.ID, states: h.states, cost: (*int64)(&st.Actual.Cost), most: int64(h.Max.Cost),
		since: h.At, details: st.details(h),
		want: func(m Metric) any { return m.settled(st.Actual) },
	}
}

// receipt reads the answer of the settle script.
func (s *Store) receipt(a answer, h *Hold, estimated bool) (Receipt, error) {
	if a.verdict == "old" {
		if !isCap(h.Call.Org) { // caps have no list
			s.metrics.reconciled.Inc()
		}
		return Receipt{}, fmt.Errorf("settle %s: %w", h.ID, ErrTooOld)
	}
	r := Receipt{
		Charged: pricing.Nano(a.head[1]), Overrun: pricing.Nano(a.head[2]),
		Replayed: a.verdict == "replayed", Late: a.head[3] == 1, At: time.UnixMicro(a.head[4]),
	}
	if !isCap(h.Call.Org) { // the money is the org's
		s.metrics.settled(r, estimated)
	}
	return r, nil
}

// settled is what stays charged of a metric after a call with these amounts.
func (m Metric) settled(a Amounts) int64 {
	if m == Concurrency {
		return 0
	}
	return m.amountOf(a)
}

// Void gives all of the hold back: the call leaves no trace in any limit. For
// calls that did no work at the provider. A call that was settled stays so; one
// whose hold expired gets the charge back. Repeating it does no harm.
func (s *Store) Void(ctx context.Context, h *Hold) error {
	s.untrack(h.Call.Org, h.ID)
	e, began := Settle{Hold: h}, s.now()
	_, err := s.end(ctx, s.scripts.void, voiding(h))
	err = s.endCaps(ctx, []Settle{e}, []Settled{{Err: err}})[0].Err
	s.answered(e, began, err)
	return err
}

// VoidLost voids a call's hold of which only the Call is known, because the
// answer to Hold was lost, and what these caps hold for it. If a hold was never
// taken, it cannot be any more.
func (s *Store) VoidLost(ctx context.Context, c Call, caps ...Cap) error {
	if err := c.validate(); err != nil {
		return err
	}
	return s.Void(ctx, Lost(c, caps...))
}

func voiding(h *Hold) settleArgs {
	return settleArgs{
		call: h.Call, id: h.ID, states: h.states, cost: 0, details: Details{Outcome: "void"},
		want: func(Metric) any { return 0 },
	}
}

// settleArgs is what settle, void and expire are told.
type settleArgs struct {
	call    Call
	id      string // of the hold
	states  []state
	cost    any // nano-USD or a pointer to them, or an ExpiredCharge
	most    int64
	since   time.Time // of the admission; zero: as the call id says
	details Details
	want    func(Metric) any
}

// end runs an ending script. When the hold has other limits than the caller
// knows, it asks the store for them and tries again.
func (s *Store) end(ctx context.Context, sc script, e settleArgs) (answer, error) {
	for try := 0; ; try++ {
		a, err := s.askFor(ctx, sc, func(now time.Time) (*request, error) { return s.endingRequest(ctx, sc, e, now) })
		if err != nil || a.verdict != "keys" {
			return a, err
		}
		if try == 2 {
			return a, fmt.Errorf("budget: %s %s: its limits change under it", sc.name, e.id)
		}
		if e.states, err = s.statesOf(ctx, e.call); err != nil {
			return a, err
		}
	}
}

// endingRequest is what an ending asks of its script at a time.
func (s *Store) endingRequest(ctx context.Context, sc script, e settleArgs, now time.Time) (*request, error) {
	limits, err := limitUses(e.states, now)
	if err != nil {
		return nil, err
	}
	for i := range limits {
		limits[i].want = e.want(e.states[i].Metric)
	}
	since := e.since
	if since.IsZero() {
		since, _ = idTime(e.call.ID)
	}
	u, c := e.details.Usage, e.details.Costs
	end := &endingRequest{cost: e.cost, estimated: notEstimated, field: rollupField(e.call), numbers: [12]int64{
		e.most, since.UnixMicro(), u.Input, u.CachedInput, u.CacheWrite + u.CacheWrite1h, u.Output,
		int64(c.Input), int64(c.CachedInput), int64(c.CacheWrite), int64(c.Output), int64(c.Fees),
	}}
	if e.details.Estimated {
		end.estimated = estimated
	}
	if own, ok := e.cost.(*int64); ok { // the caller's, which a flight it no longer waits for would still read
		end.numbers[11] = *own
		end.cost = &end.numbers[11]
	}
	if !isCap(e.call.Org) { // caps have no ledger
		end.entry = openEntry(e.call, e.details)
	}
	r := newRequest(ctx, common{
		script: sc, now: s.given(), org: e.call.Org, chunk: s.chunkOf(e.call), days: s.daysAround(now), ending: &s.endingOptions,
	}, e.id, limits)
	r.ending = end
	return r, nil
}

var estimated, notEstimated any = 1, 0

// endingOptions are those of Options that every ending passes on, as arguments.
type endingOptions struct{ horizon, doneLife, fields, ledgerLength, ledgerLife, rollupLife any }

func (o Options) ending() endingOptions {
	return endingOptions{
		horizon: o.Horizon.Microseconds(), fields: rollupFields, doneLife: (o.Horizon + chunkSpan + reachBack).Milliseconds(),
		ledgerLength: o.LedgerLength, ledgerLife: o.LedgerLife.Milliseconds(), rollupLife: o.RollupLife.Milliseconds(),
	}
}

// threeDays are the roll-ups an ending may have to add to.
type threeDays struct {
	day   int64 // of the first, since 1970
	first any   // day, as an argument
	keys  [3]string
	hours [3]string // of their hours
}

// daysAround returns yesterday, today and tomorrow, made once a day.
func (s *Store) daysAround(now time.Time) *threeDays {
	day := now.UnixMicro()/dayMicros - 1
	days := s.days.Load()
	if days == nil || days.day != day {
		days = &threeDays{
			day: day, first: day, keys: [3]string{rollupKey(day), rollupKey(day + 1), rollupKey(day + 2)},
			hours: [3]string{hoursKey(day), hoursKey(day + 1), hoursKey(day + 2)},
		}
		s.days.Store(days)
	}
	return days
}

// chunkName is the name of a chunk of tombstones and its number.
type chunkName struct {
	number int64
	name   string
}

// chunkOf is the call's chunk, named once for all calls in a row that share it.
func (s *Store) chunkOf(c Call) string {
	n := c.chunkNumber()
	last := s.chunk.Load()
	if last == nil || last.number != n {
		last = &chunkName{n, c.chunk()}
		s.chunk.Store(last)
	}
	return last.name
}

// statesOf reads the limits of a hold from its record or its tombstone; none if
// the store knows neither.
func (s *Store) statesOf(ctx context.Context, c Call) ([]state, error) {
	for _, name := range []string{"holds", c.chunk()} {
		text, err := s.rdb.HGet(ctx, key(c.Org, name), c.holdID()).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, storeError("read hold", err)
		}
		if h, ok := decodeRecord(c.Org, c.holdID(), text); ok {
			return h.states, nil
		}
	}
	return nil, nil
}
