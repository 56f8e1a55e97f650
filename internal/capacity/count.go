package capacity

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

var (
	reserveScript = lua.Load("capacity_reserve")
	settleScript  = lua.Load("capacity_settle")
	releaseScript = lua.Load("capacity_release")
)

// Count counts the bytes of one place by org. Its scripts are idempotent per id. Every entry
// expires with the data that it counts, so one that is never released does no lasting harm.
type Count struct {
	scripts redisconn.Scripter
	keys    []string
	clock   string // test clock in microseconds; empty: Redis TIME
}

// CountAt returns the count stored under keys with this prefix and its hash tag. sums is the
// key of the hash of its sums.
func CountAt(scripts redisconn.Scripter, prefix, sums string) Count {
	return Count{scripts: scripts, keys: []string{prefix + ":entries", prefix + ":ends", sums}}
}

// Keys returns the keys of the count, for other scripts that read it.
func (c Count) Keys() []string { return slices.Clone(c.keys) }

// Bytes are what an id has in a place or may write to it: Reserved plus Written.
type Bytes struct {
	Reserved int64
	// Written is being written, or has been; AsBefore keeps the present value.
	Written int64
}

// AsBefore stands for the bytes already counted as written.
const AsBefore = -1

// Bound is the capacity of a place.
type Bound struct {
	Most  int64 // bytes; 0: unlimited
	Other int64 // bytes in it that are not counted
	Share int   // percentage of what other orgs leave that an org may have
	whole int64 // Most if the servers were empty
}

// Reservation reserves bytes of an id of an org for a maximum lifetime.
type Reservation struct {
	Org, ID string
	Bytes   Bytes
	Life    time.Duration
}

// Reserve admits bytes before they are written. It replaces the id's previous bytes. The error
// is a *FullError or from Redis.
func (c Count) Reserve(ctx context.Context, r Reservation, in Bound) error {
	reply, err := reserveScript.Run(ctx, c.scripts, c.keys, c.clock, r.ID, r.Org, r.Bytes.Reserved, r.Bytes.Written,
		r.Life.Microseconds(), in.Most, in.Other, in.Share).Text()
	if err != nil {
		return fmt.Errorf("capacity: reserve: %w", err)
	}
	if reply == "ok" {
		return nil
	}
	var scope string
	full := &FullError{}
	if _, err := fmt.Sscanf(reply, "full %s %d", &scope, &full.Free); err != nil {
		return fmt.Errorf("capacity: reserve replied %q", reply)
	}
	full.Org = scope == "org"
	return full
}

// Settled is what remains of a reservation.
type Settled struct {
	ID string
	// Written is how many bytes remain, for Life; AsBefore means those written before.
	Written int64
	Life    time.Duration
	// Released means that Release may be called for it before it expires.
	Released bool
}

// Settle ends reservations. It is idempotent, and works when memory is full.
func (c Count) Settle(ctx context.Context, all ...Settled) error {
	args := append(make([]any, 0, 1+4*len(all)), c.clock)
	for _, e := range all {
		released := 0
		if e.Released {
			released = 1
		}
		args = append(args, e.ID, e.Written, e.Life.Microseconds(), released)
	}
	return c.run(ctx, "settle", settleScript, args)
}

// Release releases the bytes of ids whose data is gone. It is idempotent, and works when memory
// is full.
func (c Count) Release(ctx context.Context, ids ...string) error {
	args := append(make([]any, 0, 1+len(ids)), c.clock)
	for _, id := range ids {
		args = append(args, id)
	}
	return c.run(ctx, "release", releaseScript, args)
}

// Expire removes expired entries from the sums, some at a time. The other methods do it first.
func (c Count) Expire(ctx context.Context) error {
	return c.run(ctx, "expire", releaseScript, []any{c.clock, ""})
}

func (c Count) run(ctx context.Context, what string, script *redisconn.Script, args []any) error {
	if len(args) == 1 {
		return nil
	}
	if err := script.Run(ctx, c.scripts, c.keys, args...).Err(); err != nil {
		return fmt.Errorf("capacity: %s: %w", what, err)
	}
	return nil
}
