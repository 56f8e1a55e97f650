package spool

import (
	"context"
	"time"
)

// SmallEvent is how many bytes of events each stream may hold without being counted. All events
// except pictures are smaller.
const SmallEvent = 64 << 10

// Room counts the memory that a stream holds in addition to a Buffer: the current incomplete
// event. It is not safe for concurrent use.
type Room struct {
	memory   *Budget
	org      string
	patience time.Duration
	taken    int64
}

// Room returns an empty Room. It waits for memory up to patience each time, and must be closed.
func (s *Store) Room(org string, patience time.Duration) Room {
	return Room{memory: s.Memory, org: org, patience: patience}
}

// Resize takes or returns memory for a stream that now holds this many bytes. The error is a
// *FullError or from ctx.
func (r *Room) Resize(ctx context.Context, held int) error {
	need := max(int64(held)-SmallEvent, 0)
	if need > r.taken {
		if err := r.memory.Take(ctx, r.org, need-r.taken, r.patience); err != nil {
			return err
		}
	} else if need < r.taken {
		r.memory.Give(r.org, r.taken-need)
	}
	r.taken = need
	return nil
}

// Close returns everything.
func (r *Room) Close() {
	if r.taken > 0 {
		r.memory.Give(r.org, r.taken)
	}
	r.taken = 0
}
