// Package budget holds money, tokens and calls against limits, and keeps the
// ledger of what was charged.
//
// A call is held before it is forwarded ([Store.Hold]): one script in Redis
// checks every limit of the org, the user and the key and takes from all of them
// or from none. While it runs the hold may grow ([Store.Extend]) and is renewed
// ([Store.Run]). It ends in exactly one way: [Store.Settle] replaces it by the
// actual cost, [Store.Void] gives all of it back, or its lease runs out and it
// stays charged, marked as an estimate, until a late settle corrects it. Every
// one of these may be repeated any number of times.
//
// Charges and open holds inside an enforced limit never exceed it, whichever
// process asks. The one exception is an actual cost above its hold: it is
// charged all the same, as an overrun, and the limit stays in debt until time
// has paid it.
//
// The package does not price calls, does not know which limits concern which
// model, and does not wait: a call that does not fit gets an [ExceededError]
// that says when it would. It promises what Redis keeps: after a failover that
// loses writes, those charges are missing until they are settled again.
package budget

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/journal"
)

var (
	// ErrUnavailable means that the store did not answer in time or cannot take
	// the write now. The operation may have been applied: repeat it, or give a
	// hold back with VoidLost.
	ErrUnavailable = errors.New("budget: the store is unavailable")
	// ErrFull is ErrUnavailable of a store that answers: its memory or its disk has no room
	// for the write, which was not applied. Whoever waits for a store that does not answer has
	// to tell the two apart, because callers can fill a store and cannot silence it.
	ErrFull = fmt.Errorf("%w: its memory or disk is full", ErrUnavailable)
	// ErrEnded means that the hold was settled, voided or has expired.
	ErrEnded = errors.New("budget: the hold has ended")
	// ErrTooOld means that a settle came so late that it can no longer be told
	// from a replay. Its charge stands in the org's reconciliation list.
	ErrTooOld = errors.New("budget: too late to settle, put on the reconciliation list")
)

// What an expired hold is charged.
const (
	ChargeMax      = "max"
	ChargeExpected = "expected"
)

const (
	chunkSpan  = 10 * time.Minute    // of call ids whose tombstones share a key
	recordLife = 32 * 24 * time.Hour // of open holds, renewed with them; longer than any month
	reachBack  = 10 * time.Minute    // clock skew of call ids that tombstones outlive
	dayMicros  = 24 * hourMicros     // a UTC day
	hourMicros = 3600 * 1_000_000
)

// Options tune a Store. The zero value is usable.
type Options struct {
	// Lease is how long a hold lives without renewal. Default 60 s.
	Lease time.Duration
	// Horizon is how long a settled or voided call remembers what became of it,
	// and how late an unknown one is still charged. Default 1 h.
	Horizon time.Duration
	// ExpiredCharge is what a hold whose holder died is charged: ChargeMax
	// (default) or ChargeExpected.
	ExpiredCharge string
	// LedgerLength bounds an org's ledger stream, about. Default 1,000,000
	// entries. LedgerLife is its lifetime after the last entry (default 90
	// days), RollupLife that of a day's sums (default 400 days).
	LedgerLength           int64
	LedgerLife, RollupLife time.Duration

	// Journal keeps the ends of calls that the store does not take (Later). Nil:
	// they are kept in memory. The caller closes it after Run has ended.
	Journal *journal.Journal

	// Tail is how long ended calls are remembered, to be written again by Run
	// when a failover or a restart made the store forget what it had answered.
	// Default 60 s, and no more than 100,000 calls; negative: not at all.
	Tail time.Duration

	// EpochFile remembers across restarts which data the store had, so that a loss of
	// them is noticed that happened while no process ran. Empty: it is not.
	EpochFile string
	// OpenAfterLoss lets limits count from zero after the store lost its data.
	// Otherwise each is closed for the length of its window.
	OpenAfterLoss bool

	// Scripts runs the scripts; nil: the client given to New. One that sends
	// what concurrent callers ask for together saves system calls under load.
	Scripts Scripts
	// Money runs the scripts that change what is held or charged; nil: Scripts. One
	// that fails when no replica acknowledged the write has holds refused then, and
	// ends kept.
	Money Scripts
	// Flights begins what ends many holds at once; nil: a pipeline of the client.
	Flights func() Flight

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
	set(&o.LedgerLife, 90*24*time.Hour)
	set(&o.RollupLife, 400*24*time.Hour)
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
type Scripts interface {
	redis.Scripter
	Process(ctx context.Context, cmd redis.Cmder) error
}

// key returns the Redis key of an org's record. All keys of an org share a hash
// tag, so that one script may touch them on a cluster.
func key(org, name string) string {
	return "lg:{" + org + "}:" + name
}

// validOrg keeps hash tags whole.
func validOrg(org string) bool {
	return org != "" && !strings.ContainsAny(org, "{}")
}
