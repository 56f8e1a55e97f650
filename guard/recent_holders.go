package guard

import (
	"hash/maphash"
	"sync/atomic"
)

// recentHolders remembers which callers' last hold succeeded, with a fixed number of slots,
// because refused callers must not book quota with every call. Unknown callers count as
// refused. It is safe for concurrent use.
type recentHolders struct {
	seed   maphash.Seed
	places [holderPlaces]atomic.Uint64
}

const holderPlaces = 1 << 14

func newRecentHolders() *recentHolders { return &recentHolders{seed: maphash.MakeSeed()} }

// of identifies a caller and model by everything that limits distinguish.
func (l *recentHolders) of(p *Plan) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	for _, part := range [...]string{p.Caller.Org.ID, p.Caller.User, p.Caller.Key, p.Caller.IP, p.Request.Model} {
		h.WriteString(part)
		h.WriteByte(0)
	}
	return h.Sum64()
}

func (l *recentHolders) place(who uint64) *atomic.Uint64 { return &l.places[who%holderPlaces] }

func (l *recentHolders) has(who uint64) bool { return l.place(who).Load() == who }

func (l *recentHolders) note(who uint64, held bool) {
	p := l.place(who)
	switch last := p.Load(); {
	case held && last != who:
		p.Store(who)
	case !held && last == who:
		p.CompareAndSwap(who, 0)
	}
}
