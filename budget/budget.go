// Package budget enforces limits on money, tokens and calls, and keeps the ledger of what was
// charged.
//
// Before a call is forwarded, [Store.Hold] reserves its maximum: one script in Redis checks every
// limit of the org, the user and the key and takes from all of them or from none. While the call
// runs, the hold may grow ([Store.Extend]) and is renewed ([Store.Run]). It ends in exactly one
// way: [Store.Settle] replaces it by the actual cost, [Store.Void] returns all of it, or its lease
// expires and it stays charged, marked as an estimate, until a late settle corrects it. Each of
// these operations may be repeated any number of times.
//
// Charges and open holds together never exceed an enforced limit, however many processes use it.
// The one exception is an actual cost above its hold: it is charged in full, as an overrun, and the
// limit stays in debt until enough time has passed.
//
// The package does not price calls, does not know which limits apply to which model, and does not
// wait: a call over a limit gets an [ExceededError] that says when it would fit. Durability is that
// of Redis: after a failover that loses writes, those charges are missing until they are settled
// again.
package budget

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/budget/journal"
	"github.com/llmguard/llmguard/budget/outage"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
)

var (
	// ErrUnavailable means that the store did not answer in time or cannot accept the write now.
	// The operation may have been applied: repeat it, or return a hold with VoidLost.
	ErrUnavailable = outage.ErrUnavailable
	// ErrFull is an ErrUnavailable from a store that does answer: its memory or disk is full, and
	// the write was not applied. Code that waits for an unreachable store has to distinguish the
	// two, because callers can fill a store but cannot make it unreachable.
	ErrFull = outage.ErrFull
	// ErrEnded means that the hold was settled, voided or has expired.
	ErrEnded = errors.New("budget: the hold has ended")
	// ErrTooOld means that a settle came too late to be distinguished from a repetition. Its charge
	// is on the org's reconciliation list.
	ErrTooOld = errors.New("budget: too late to settle, put on the reconciliation list")
)

// What an expired hold is charged.
const (
	ChargeMax      = "max"
	ChargeExpected = "expected"
)

const (
	chunkSpan  = 10 * time.Minute    // of call ids whose tombstones share a key
	recordLife = 32 * 24 * time.Hour // of open holds, renewed with them; longer than any month and batch
	reachBack  = 10 * time.Minute    // clock skew of call ids that tombstones allow for
	dayMicros  = 24 * hourMicros     // a UTC day
	hourMicros = 3600 * 1_000_000
)

// Options tune a Store. The zero value is usable.
type Options struct {
	// Lease is how long a hold lasts without renewal. Default 60 s.
	Lease time.Duration
	// Horizon is how long the outcome of a settled or voided call is remembered, and how late a
	// call without a known outcome is still charged. Default 1 h.
	Horizon time.Duration
	// ExpiredCharge is what a hold is charged when its process died: ChargeMax (default) or
	// ChargeExpected.
	ExpiredCharge string
	// LedgerLength is the approximate maximum length of an org's ledger stream. Default 1,000,000
	// entries. LedgerLife is its lifetime after the last entry (default 90 days), RollupLife that
	// of a day's sums (default 400 days).
	LedgerLength           int64
	LedgerLife, RollupLife time.Duration
	// JobLife is how long the cost of a job can be read after its last charge (default 2 days).
	JobLife time.Duration

	// SumLabels are the labels by which the sums of days are kept; see Store.SumLabels.
	SumLabels []string

	// Journal keeps endings of calls that the store does not accept (Later). Nil keeps them in
	// memory. The caller closes it after Run has returned.
	Journal *journal.Journal

	// Tail is how long ended calls are remembered, so that Run can write them again after a
	// failover or a restart that lost acknowledged writes. Default 60 s, and at most 100,000 calls;
	// negative disables it.
	Tail time.Duration

	// EpochFile remembers across restarts which data the store had, so that data lost while no
	// process ran is detected. Empty disables this.
	EpochFile string
	// OpenAfterLoss lets limits count from zero after the store lost its data. Otherwise each is
	// closed for the length of its window.
	OpenAfterLoss bool

	// Memory admits the values of labels that callers choose to the memory of Redis; nil: it has no bound.
	Memory *capacity.Memory
	// Scripts runs the scripts; nil means the client given to New. An implementation that joins the
	// requests of concurrent callers saves system calls under load.
	Scripts Scripts
	// Spread returns into how many parts an org's money is divided; nil: one. It may change at any
	// time: calls end where they were held, and the ledger is read from all parts ever used. Every
	// process should have the same, because a subject's calls in two parts have two counts.
	Spread func(org string) Spread
	// Money runs the scripts that change what is held or charged; nil means Scripts. If it fails
	// because no replica acknowledged the write, holds are refused and endings are kept.
	Money Scripts
	// Flights starts the batches that end many holds in one round trip; nil means a pipeline of the
	// client.
	Flights func() Flight

	// CountTimeout is how long Requests waits for the store before it counts on its own. Default
	// 250 ms.
	CountTimeout time.Duration

	// Now is the time of this process and of scripts in tests; nil: Redis's.
	Now func() time.Time

	Log     *slog.Logger          // nil: discarded
	Metrics prometheus.Registerer // nil: not registered
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	set(&o.Lease, time.Minute)
	set(&o.Horizon, time.Hour)
	set(&o.CountTimeout, 250*time.Millisecond)
	set(&o.LedgerLife, 90*24*time.Hour)
	set(&o.RollupLife, 400*24*time.Hour)
	set(&o.JobLife, 48*time.Hour)
	if o.Tail == 0 {
		o.Tail = time.Minute
	}
	if o.LedgerLength <= 0 {
		o.LedgerLength = 1_000_000
	}
	if o.ExpiredCharge == "" {
		o.ExpiredCharge = ChargeMax
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Scripts runs scripts: a client of Redis, or a redisconn.Coalescer.
type Scripts = redisconn.Scripts
