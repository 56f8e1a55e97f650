package budget

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/pricing"
)

// Settlement is the outcome and the cost of a call.
type Settlement struct {
	Actual    Amounts
	Usage     pricing.Usage
	Split     pricing.Split // of Actual.Cost; ignored if it does not add up to it
	Estimated bool          // Actual is our estimate, not reported by the provider
	Outcome   string
	Status    int // HTTP status of the provider, 0 if there was none
	// Failed means that the provider failed, so that the caller, or llmguard for a job, sends the request
	// again. Brakes do not count it, nor do limits on requests if it is a job's.
	Failed      bool `json:",omitzero"`
	UpstreamID  string
	AnswerID    string `json:",omitzero"`
	ServiceTier string

	// Quota is the number of tokens booked on the provider's quota, Class is async or batch for
	// such a job, and Stream says that the response was a stream of events.
	Quota  int64  `json:",omitzero"`
	Class  string `json:",omitzero"`
	Stream bool   `json:",omitzero"`

	Waited, Took time.Duration
}

// Receipt is what the ledger records for a settled call.
type Receipt struct {
	Charged  pricing.Nano
	Overrun  pricing.Nano // the part of Charged above what was held
	Replayed bool         // it had already been settled; Charged is from the first time
	Late     bool         // its hold had expired, was voided or lost; the difference is charged
	At       time.Time
}

// Settle replaces the hold by what the call cost, and writes the ledger. Excess is returned to
// where it was taken, newest first, unless that has left its window. What the call cost beyond the
// hold is charged now, even over the limit. A repeated Settle charges nothing and returns the first
// receipt.
//
// A hold that the store no longer knows is charged in full within Options.Horizon of its admission;
// later it is added to the reconciliation list (ErrTooOld). An error with a receipt means that only
// a spend cap has still to be settled: try again.
func (s *Store) Settle(ctx context.Context, h *Hold, st Settlement) (Receipt, error) {
	if err := st.Actual.validate("charge"); err != nil {
		return Receipt{}, err
	}
	s.leases.untrack(h)
	e, began := Settle{h, &st}, s.clock.now()
	r, err := s.settler.settle(ctx, e)
	done := s.settler.caps(ctx, []Settle{e}, []Settled{{r, err}})[0]
	s.answered(e, began, done.Err)
	return done.Receipt, done.Err
}

// Void returns all of the hold, so that the call leaves no trace in any limit. It is for calls that
// did no work at the provider. A settled call stays settled; if the hold expired, the charge is
// reversed. Repeating it is harmless.
func (s *Store) Void(ctx context.Context, h *Hold) error {
	s.leases.untrack(h)
	e, began := Settle{Hold: h}, s.clock.now()
	_, err := s.settler.end(ctx, s.runner.scripts.void, voiding(h))
	err = s.settler.caps(ctx, []Settle{e}, []Settled{{Err: err}})[0].Err
	s.answered(e, began, err)
	return err
}

// VoidLost voids a hold of which only the Call is known, because the answer to Hold was lost, and
// what these caps hold for it. If the hold was never taken, it cannot be taken any more.
func (s *Store) VoidLost(ctx context.Context, c ledger.Call, caps ...Cap) error {
	if err := validateCall(c); err != nil {
		return err
	}
	return s.Void(ctx, Lost(s.places.put(c), caps...))
}

// Lost returns a stand-in for a hold whose answer was lost. Ending it without a Settlement returns
// what the hold and its caps may have taken.
func Lost(c ledger.Call, caps ...Cap) *Hold {
	h := &Hold{ID: c.HoldID(), Call: c}
	for _, spend := range caps {
		h.caps = append(h.caps, Lost(spend.of(c)))
	}
	return h
}

// Settle is how one hold ends: settled, or voided without a settlement.
type Settle struct {
	Hold       *Hold
	Settlement *Settlement // nil: void
}

// Flight is a batch of commands: Add adds one and returns immediately, Exec sends them and
// waits for all. A redisconn.Pipe is one. If Exec fails after ctx has ended, the commands must not
// be read.
type Flight interface {
	Add(ctx context.Context, cmd redisconn.Reply)
	Exec(ctx context.Context) error
}

// Settled is the result of one Settle.
type Settled struct {
	Receipt Receipt // after a void only Replayed is set
	Err     error   // as of Settle and Void; with a Receipt, only a cap failed
}

// SettleAll settles and voids many holds independently of each other, as Settle and Void do, in one
// batch to Redis, and in a second one what spend caps hold for them, if anything. The result has
// one element per ending, in their order. It is safe for concurrent use and idempotent.
func (s *Store) SettleAll(ctx context.Context, endings []Settle) []Settled {
	began := s.clock.now()
	out := s.settler.all(ctx, endings)
	for i, e := range endings {
		s.answered(e, began, out[i].Err)
	}
	return out
}

// answered records the result of an ending that was sent to the store at began.
func (s *Store) answered(e Settle, began time.Time, err error) {
	remember(s.recent, e, err)
	s.Offline.answered(e, began, err)
}

// Later keeps endings that the store could not accept, and returns when they are safe: in the
// journal (Options.Journal), on disk if it is durable. Run writes them when the store is back.
// written, if not nil, is called for each settlement that this process writes, with the id and the
// call of its hold; a later process writes what this one could not.
//
// An error means that some could not be kept: their holds, if they have any, expire and are charged
// in full.
func (s *Store) Later(ctx context.Context, endings []Settle, written func(Settle, Receipt)) error {
	kept, err := keeping(endings, written) // before the shares are given back, because records say who has any
	if err != nil {
		return err
	}
	for _, e := range endings {
		s.Offline.shares.give(e)
	}
	err = s.Deferred.Keep(ctx, kept)
	if err == nil {
		return nil
	}
	for _, e := range endings { // what is left to expire must not be renewed
		s.leases.untrack(e.Hold)
		for _, part := range e.Hold.caps {
			s.leases.untrack(part)
		}
	}
	return err
}
