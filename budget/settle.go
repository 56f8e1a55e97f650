package budget

import (
	"context"
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
	s.leases.untrack(h.Call.Org, h.ID)
	e, began := Settle{h, &st}, s.clock.now()
	r, err := s.settler.settle(ctx, e)
	done := s.settler.caps(ctx, []Settle{e}, []Settled{{r, err}})[0]
	s.answered(e, began, done.Err)
	return done.Receipt, done.Err
}

// Void gives all of the hold back: the call leaves no trace in any limit. For
// calls that did no work at the provider. A call that was settled stays so; one
// whose hold expired gets the charge back. Repeating it does no harm.
func (s *Store) Void(ctx context.Context, h *Hold) error {
	s.leases.untrack(h.Call.Org, h.ID)
	e, began := Settle{Hold: h}, s.clock.now()
	_, err := s.settler.end(ctx, s.runner.scripts.void, voiding(h))
	err = s.settler.caps(ctx, []Settle{e}, []Settled{{Err: err}})[0].Err
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

// Settle is how one hold ends: by its settlement, or given back without one.
type Settle struct {
	Hold       *Hold
	Settlement *Settlement // nil: void
}

// Flight is scripts that are sent together: Process adds one and returns immediately,
// Exec waits for all. A redis.Pipeliner is one. With an error after ctx has ended
// the commands must not be read.
type Flight interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Exec(ctx context.Context) ([]redis.Cmder, error)
}

// Settled is what became of one Ending.
type Settled struct {
	Receipt Receipt // after a void only Replayed is set
	Err     error   // as of Settle and Void; with a Receipt only a cap failed
}

// SettleAll settles and voids many holds, each as Settle and Void do and each for
// itself, in one flight to Redis, and in a second one what spend caps hold for
// them, if anything. The result has one element per ending, in their order. It is
// safe for concurrent use and idempotent.
func (s *Store) SettleAll(ctx context.Context, endings []Settle) []Settled {
	began := s.clock.now()
	out := s.settler.all(ctx, endings)
	for i, e := range endings {
		s.answered(e, began, out[i].Err)
	}
	return out
}

// answered notes what became of an ending that the store was asked for at an instant.
func (s *Store) answered(e Settle, began time.Time, err error) {
	s.recent.answered(e, err)
	s.Offline.answered(e, began, err)
}

// Later keeps endings that the store could not take, and returns when they are
// safe: in the journal (Options.Journal), on disk if it is durable. Run writes
// them when the store is back. Written, if not nil, is told of each settlement
// of this process; a later process writes what this one could not.
//
// The error says that some could not be kept: their holds, if they have any,
// expire and are charged in full.
func (s *Store) Later(ctx context.Context, endings []Settle, written func(Settle, Receipt)) error {
	records, err := walRecords(endings) // before the shares are given back: records say who has any
	if err != nil {
		return err
	}
	for _, e := range endings {
		s.shares.give(e)
	}
	err = s.Deferred.keep(ctx, endings, records, written)
	if err == nil {
		return nil
	}
	for _, e := range endings { // nobody renews what is left to expire
		s.leases.untrack(e.Hold.Call.Org, e.Hold.ID)
		for _, part := range e.Hold.caps {
			s.leases.untrack(part.Call.Org, part.ID)
		}
	}
	return err
}
