package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/lua"
)

// records admits the small records that callers create to the memory of Redis. Without a Memory it admits everything.
type records struct{ memory *capacity.Memory }

// memoryID returns the id of a record of an org in capacity.
func memoryID(org, record string) string { return org + " " + record }

// Reserve admits the bytes of a record before it is written; a repetition replaces them. The error is a
// *capacity.FullError or comes from Redis.
func (r *records) Reserve(ctx context.Context, org, id string, bytes int64, life time.Duration) error {
	if r.memory == nil {
		return nil
	}
	return r.memory.Reserve(ctx, org, id, capacity.Bytes{Written: bytes}, life)
}

// Admit is Reserve for a record that is never released.
func (r *records) Admit(ctx context.Context, org string, bytes int64, life time.Duration) error {
	return r.memory.Admit(ctx, org, bytes, life)
}

// Settle counts what remains of a record. What cannot be settled counts until it expires.
func (r *records) Settle(ctx context.Context, s capacity.Settled) {
	if r.memory != nil {
		_ = r.memory.Settle(ctx, s)
	}
}

// Release ends the count of a record that was not written.
func (r *records) Release(ctx context.Context, id string) {
	if r.memory != nil {
		_ = r.memory.Release(ctx, id)
	}
}

// AdmitRecord admits a small record of an org to the memory of Redis before it is written. A repetition replaces what
// the id had. The error is a *capacity.FullError or comes from Redis.
func (g *Guard) AdmitRecord(ctx context.Context, org, id string, bytes int64, life time.Duration) error {
	return g.records.Reserve(ctx, org, id, bytes, life)
}

const (
	// holdBytes is about what Redis needs for an open hold, without its names and labels, and
	// endedHoldBytes for a hold or call that has ended, for endedHoldLife.
	holdBytes      = 1 << 10
	endedHoldBytes = 128
	endedHoldLife  = 80 * time.Minute
	// maxOpenHolds is how many holds of an org may be open, and openHoldShare the percentage of what the
	// org's other keys leave that one key may have.
	maxOpenHolds  = 10_000
	openHoldShare = 50
)

// openHolds counts the open holds of an org by key. memory must not be nil.
func (r *records) openHolds(org string) capacity.Count { return r.memory.Under(org, "open-holds") }

// admit admits a hold to the open holds of its org and key, and its record to the memory of Redis. A
// repetition replaces what it counted. The error is a *wire.Error, a *capacity.FullError, or wraps
// budget.ErrUnavailable.
func (hs *Holds) admit(ctx context.Context, o *Org, call ledger.Call, life time.Duration) error {
	r := hs.guard.records
	if r.memory == nil {
		return nil
	}
	err := hs.reach(ctx, o, call, func(ctx context.Context) error {
		one := capacity.Reservation{Org: call.Key, ID: call.ID, Bytes: capacity.Bytes{Written: 1}, Life: life}
		err := r.openHolds(o.ID).Reserve(ctx, one, capacity.Bound{Most: maxOpenHolds, Share: openHoldShare})
		if _, full := errors.AsType[*capacity.FullError](err); full {
			return wire.RateLimited(fmt.Sprintf("This API key or organization has too many open holds: an organization may "+
				"have %d, and a key %d %% of what other keys leave. Settle or void some", maxOpenHolds, openHoldShare),
				openHoldsRetry)
		}
		if err != nil {
			return err
		}
		bytes := int64(holdBytes + len(call.Model) + len(call.Labels) + len(call.Run))
		err = r.Reserve(ctx, o.ID, memoryID(o.ID, call.ID), bytes, life+endedHoldLife)
		if err != nil {
			_ = r.openHolds(o.ID).Release(ctx, call.ID) // else it expires
		}
		return err
	})
	switch {
	case lua.Full(err):
		return errors.Join(budget.ErrFull, err)
	case lua.Unavailable(err):
		return errors.Join(budget.ErrUnavailable, err)
	}
	return err
}

// openHoldsRetry is the wait advised to a caller with too many open holds.
const openHoldsRetry = 10 * time.Second

// release counts what remains of a hold that has ended, in bytes. What cannot be released expires.
func (hs *Holds) release(ctx context.Context, call ledger.Call, bytes int64) {
	r := hs.guard.records
	if r.memory == nil {
		return
	}
	_ = r.openHolds(call.Org).Release(ctx, call.ID)
	r.Settle(ctx, capacity.Settled{ID: memoryID(call.Org, call.ID), Written: bytes, Life: endedHoldLife})
}
