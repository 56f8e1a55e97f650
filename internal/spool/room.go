package spool

import (
	"context"
	"time"
)

// SmallEvent is how many bytes each stream may keep of its events without being counted:
// all but pictures are smaller.
const SmallEvent = 64 << 10

// Room counts the memory of what a stream of an org keeps besides a Buffer: the event that
// has yet to come to its end. It is for one goroutine.
type Room struct {
	memory   *Budget
	org      string
	patience time.Duration
	taken    int64
}

// Room returns an empty one. It waits for memory no longer than patience each time, and
// has to be closed.
func (s *Store) Room(org string, patience time.Duration) Room {
	return Room{memory: s.Memory, org: org, patience: patience}
}

// Resize takes and gives back memory for a stream that keeps so many bytes now. The error
// is a *FullError or that of ctx.
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

// Close gives everything back.
func (r *Room) Close() {
	if r.taken > 0 {
		r.memory.Give(r.org, r.taken)
	}
	r.taken = 0
}
