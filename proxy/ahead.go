package proxy

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/queue"
)

// begin holds what the call may cost, and asks for the provider's quota with it where the
// hold will probably be granted: both then wait for Redis once. What was asked for goes
// back when the call does not begin with that plan. A burst waits here for its turn, as
// long as its callers' patience lasts.
func (s *Server) begin(ctx context.Context, plan *guard.Plan, id string, patience time.Duration) (*guard.Call, *guard.Plan, *queue.Asked, error) {
	if err := turn(ctx, s.holds, patience); err != nil {
		return nil, plan, nil, err
	}
	defer func() { <-s.holds }()
	var asked *queue.Asked
	who := s.lately.of(plan)
	if s.lately.held(who) {
		asked = s.queue.Ask(ctx, liveCall(plan, id))
	}
	call, begun, err := s.guard.BeginOr(ctx, plan, id, 1, "")
	held := err == nil && begun == plan && call.Without == ""
	s.lately.note(who, held)
	switch {
	case asked == nil, held:
		return call, begun, asked, err
	case answered(call, err): // what comes next may need the place
		asked.Drop(ctx)
	default:
		asked.DropSoon(ctx)
	}
	return call, begun, nil, err
}

// answered reports whether Redis answered to a hold.
func answered(call *guard.Call, err error) bool {
	if err == nil {
		return call.Without == ""
	}
	var refused *guard.Refusal
	return errors.As(err, &refused) && !refused.Away
}

// lately knows whose last hold was granted, of as many as it has places for: those who
// are refused must not book quota with every call. Who is not known counts as refused.
// It is safe for concurrent use.
type lately struct {
	seed   maphash.Seed
	places [latelyPlaces]atomic.Uint64
}

const latelyPlaces = 1 << 14

func newLately() *lately { return &lately{seed: maphash.MakeSeed()} }

// of is who calls for what: what limits tell apart.
func (l *lately) of(p *guard.Plan) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	for _, part := range [...]string{p.Caller.Org.ID, p.Caller.User, p.Caller.Key, p.Caller.IP, p.Request.Model} {
		h.WriteString(part)
		h.WriteByte(0)
	}
	return h.Sum64()
}

func (l *lately) place(who uint64) *atomic.Uint64 { return &l.places[who%latelyPlaces] }

func (l *lately) held(who uint64) bool { return l.place(who).Load() == who }

func (l *lately) note(who uint64, held bool) {
	p := l.place(who)
	switch last := p.Load(); {
	case held && last != who:
		p.Store(who)
	case !held && last == who:
		p.CompareAndSwap(who, 0)
	}
}
