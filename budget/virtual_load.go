package budget

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// Open is what a call holds of one limit that was open when a Virtual was loaded.
type Open struct {
	Hold *VirtualHold
	// Begun is when the call began, in Unix us; 0 if the limit does not tell. Then it may be a part of
	// several calls, and Part says which: 0 to 1, of what began first to last.
	Begun int64
	Part  float64
}

const (
	// openParts is into how many parts what calls hold is divided, and openMost how many calls of a limit on
	// concurrency are told apart.
	openParts, openMost = 4, 4096
	// loadMost is how many states a script reads, so that it takes milliseconds.
	loadMost = 100
)

// loading is the states of one place that are read together.
type loading struct {
	*Hold
	twins []twin
}

// Load fills the limits that callers are bound to in a Virtual with their present states in the store, and
// changes nothing there. It returns what open calls hold. Brakes do not count.
func (s *Store) Load(ctx context.Context, v *Virtual, all []*Standing) ([]Open, error) {
	var open []Open
	for _, l := range s.loadings(all) {
		a, err := s.runner.askEach(ctx, s.runner.scripts.frees, l.Hold, noMore)
		if err != nil {
			return nil, err
		}
		for i, t := range l.twins {
			open = append(open, v.load(a.head[0], &Standing{limits: l.limits[i : i+1], twins: []twin{t}}, a.rows[i].numbers)...)
		}
	}
	return open, nil
}

// loadings lists the states of callers by place, each once.
func (s *Store) loadings(all []*Standing) []*loading {
	var out []*loading
	last, seen := map[string]*loading{}, map[twin]bool{}
	for _, on := range all {
		c := s.places.put(on.call)
		for i, t := range on.twins {
			if seen[t] {
				continue
			}
			seen[t] = true
			for _, part := range s.partsOf(&on.limits[i], c) {
				c.Part = part
				l := last[c.Place()]
				if l == nil || len(l.twins) == loadMost {
					l = &loading{Hold: &Hold{Call: c}}
					last[c.Place()], out = l, append(out, l)
				}
				l.limits, l.states = append(l.limits, on.limits[i]), append(l.states, on.states[i])
				l.twins = append(l.twins, t)
			}
		}
	}
	return out
}

// partsOf lists the parts of the org in which a limit counts calls of the same subject.
func (s *Store) partsOf(l *Limit, c ledger.Call) []int {
	spread := s.places.of(c.Org)
	if spread.whole(l, c) {
		return []int{c.Part}
	}
	return spread.numbers()
}

// load adds the state of a limit in one place to its twin.
func (v *Virtual) load(now int64, on *Standing, numbers []int64) []Open {
	l, t := on.limits[0], on.twins[0]
	used, held, frees := numbers[0], numbers[1], numbers[2:]
	if l.Metric == Requests { // stay charged
		held = 0
	}
	var open []Open
	t.open(now)
	defer t.close()
	switch t := t.(type) {
	case *ringTwin:
		for part := range slices.Chunk(frees, 3) {
			slot := part[0]/t.width - ringSlots
			k := slot % ringSlots
			t.v[k], t.h[k], t.used, t.held = t.v[k]+part[1], t.h[k]+part[2], t.used+part[1], t.held+part[2]
			open = append(open, Open{Hold: on.opened(place{at: slot}, part[2]), Begun: slot*t.width + t.width/2})
		}
	case *logTwin:
		for part := range slices.Chunk(frees, 3) {
			p := &logPart{at: part[0] - t.width, n: part[1], held: part[2] > 0}
			t.parts, t.used, t.held = append(t.parts, p), t.used+p.n, t.held+part[2]
			open = append(open, Open{Hold: on.opened(place{at: p.at, part: p}, part[2]), Begun: p.at})
		}
		slices.SortFunc(t.parts, func(a, b *logPart) int { return cmp.Compare(a.at, b.at) })
	case *bucketTwin:
		t.used, t.f, t.busy = t.used+used-held, frees[0], t.now
		return on.divided(held, openParts)
	case *periodTwin:
		t.used += used - held
		if l.Shape.Kind != Once {
			t.to = frees[0]
		}
		return on.divided(held, openParts)
	default:
		return on.divided(held, min(held, openMost))
	}
	return slices.DeleteFunc(open, func(o Open) bool { return held == 0 || o.Hold.Max.Tokens == 0 })
}

// divided charges what open calls hold of a limit that does not tell when they began, in equal parts.
func (s *Standing) divided(held, count int64) []Open {
	var open []Open
	for i := range count {
		n := held*(i+1)/count - held*i/count
		if n == 0 {
			continue
		}
		h := s.opened(place{}, n)
		h.parts[0].list[0].place = s.twins[0].charge(h, n, true)
		open = append(open, Open{Hold: h, Part: (float64(i) + 0.5) / float64(count)})
	}
	return open
}

// opened returns what an open call holds at a place of a limit.
func (s *Standing) opened(p place, n int64) *VirtualHold {
	return &VirtualHold{
		Max: Amounts{Cost: pricing.Nano(n), Tokens: n}, on: s, ends: math.MaxInt64,
		parts: []virtualPart{{total: n, list: []piece{{p, n}}}},
	}
}
