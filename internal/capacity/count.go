package capacity

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/lua"
)

var (
	reserveScript = lua.Load("capacity_reserve")
	settleScript  = lua.Load("capacity_settle")
	releaseScript = lua.Load("capacity_release")
)

// Count counts the bytes of one place by org. Its scripts are idempotent on an id. Every
// id's count ends with what it counts, so one that is never given back does no lasting harm.
type Count struct {
	scripts redis.Scripter
	keys    []string
	clock   string // test clock in microseconds; empty: Redis TIME
}

// CountAt returns the count that is kept under keys which begin with prefix and have its
// hash tag. Sums is the hash of its sums.
func CountAt(scripts redis.Scripter, prefix, sums string) Count {
	return Count{scripts: scripts, keys: []string{prefix + ":entries", prefix + ":ends", sums}}
}

// Keys are those of the count, for scripts that look at it, too.
func (c Count) Keys() []string { return slices.Clone(c.keys) }

// Bytes are what an id has in a place, or may write to it: Reserved and Written together.
type Bytes struct {
	Reserved int64
	// Written is written now, or has been; AsBefore leaves what the id has.
	Written int64
}

// AsBefore stands for the bytes that an id has written before.
const AsBefore = -1

// Bound is how much there may be in a place.
type Bound struct {
	Most  int64 // bytes; 0 = no bound
	Other int64 // bytes in it that are not counted
	Share int   // of what other orgs leave, how much an org may have, in percent
	whole int64 // Most of empty servers
}

// Reservation is bytes of an id of an org, for as long as they last at most.
type Reservation struct {
	Org, ID string
	Bytes   Bytes
	Life    time.Duration
}

// Reserve admits bytes before they are written. It replaces what the id has. The error is a
// *FullError or of Redis.
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

// Settled is what stays of a reservation.
type Settled struct {
	ID string
	// Written is how many bytes stay, for Life; AsBefore: those written before.
	Written int64
	Life    time.Duration
	// Released says that Release may be called for it before it expires.
	Released bool
}

// Settle ends reservations. It is idempotent, and full memory does not refuse it.
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

// Release gives back what ids have, whose bytes are gone. It is idempotent, and full
// memory does not refuse it.
func (c Count) Release(ctx context.Context, ids ...string) error {
	args := append(make([]any, 0, 1+len(ids)), c.clock)
	for _, id := range ids {
		args = append(args, id)
	}
	return c.run(ctx, "release", releaseScript, args)
}

// Expire removes what has expired from the sums, some at a time. The other calls do it
// first.
func (c Count) Expire(ctx context.Context) error {
	return c.run(ctx, "expire", releaseScript, []any{c.clock, ""})
}

func (c Count) run(ctx context.Context, what string, script *redis.Script, args []any) error {
	if len(args) == 1 {
		return nil
	}
	if err := script.Run(ctx, c.scripts, c.keys, args...).Err(); err != nil {
		return fmt.Errorf("capacity: %s: %w", what, err)
	}
	return nil
}
