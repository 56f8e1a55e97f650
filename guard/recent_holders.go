package guard

import (
	"hash/maphash"
	"sync/atomic"
)

// recentHolders knows whose last hold was granted, of as many as it has places for: those who
// are refused must not book quota with every call. Who is not known counts as refused.
// It is safe for concurrent use.
type recentHolders struct {
	seed   maphash.Seed
	places [holderPlaces]atomic.Uint64
}

const holderPlaces = 1 << 14

func newRecentHolders() *recentHolders { return &recentHolders{seed: maphash.MakeSeed()} }

// of is who calls for what: what limits tell apart.
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
