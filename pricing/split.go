package pricing

import (
	"cmp"
	"slices"
)

// Split is a charge by class. Its parts are never negative and add up to the charge, to the
// nano-unit.
//
// A charge is rounded up once, so its parts cannot all be exact. They are rounded as a running sum:
// the cost of the parts up to and including one is rounded up, and the part is the increase. The
// order is that of the fields. Each part therefore differs from its exact value by less than a
// nano-unit, a part without consumption is 0, and a charge with a single part is exactly that part.
type Split struct {
	Input       Nano // input at no special rate, and image and audio input
	CachedInput Nano
	CacheWrite  Nano // for the default time and for an hour
	Output      Nano // including reasoning, image and audio output
	Fees        Nano // per request, tool call, search unit, picture, character and minute of audio
}

// Total returns the charge.
func (s Split) Total() Nano { return s.Input + s.CachedInput + s.CacheWrite + s.Output + s.Fees }

// Split returns the result of [Price.Charge] by class. The only error is [ErrOverflow].
func (p *Price) Split(u Usage, t Terms) (Split, error) {
	u, _ = u.Clamp()
	c, err := p.charged(&u, t)
	return c.Split, err
}

// split returns (tokens x rates x f + fees) / 1000, rounded up after every class. u must be clamped.
func (r *rates) split(u *Usage, f factors) (Split, error) {
	classIn, classOut := r.classes(u)
	in, restIn := portions(classIn[:], u.Input)
	out, restOut := portions(classOut[:], u.Output)
	run := running{f: f, ok: f.ok}
	var s Split
	s.Input = run.next([]class{{restIn, r.input}, {in[3], r.audioIn}, {in[4], r.imageIn}})
	s.CachedInput = run.next([]class{{in[0], r.cached}, {in[5], r.cachedAudio}})
	s.CacheWrite = run.next([]class{{in[1], r.write}, {in[2], r.write1h}})
	s.Output = run.next([]class{{restOut, r.output}, {out[0], r.audioOut}, {out[1], r.imageOut}})
	run.fees(u.Requests, r.perRequest)
	run.fees(u.ToolCalls, r.perToolCall)
	run.media(r, u)
	s.Fees = run.next(nil)
	if !run.ok {
		return Split{}, ErrOverflow
	}
	return s, nil
}

// portions returns how many of total tokens are in each class, and how many are left. Classes may
// overlap (cached audio); if together they exceed total, the most expensive ones are counted first
// and no token is counted twice.
func portions(classes []class, total int64) (taken [6]int64, left int64) {
	var named int64
	order := [6]int{0, 1, 2, 3, 4, 5}
	for _, c := range classes {
		named += c.tokens
	}
	if named > total {
		slices.SortStableFunc(order[:len(classes)], func(a, b int) int {
			return cmp.Compare(classes[b].rate, classes[a].rate)
		})
	}
	left = total
	for _, i := range order[:len(classes)] {
		taken[i] = min(classes[i].tokens, left)
		left -= taken[i]
	}
	return taken, left
}

// running is a sum of costs that is rounded up after every step.
type running struct {
	f       factors
	tokens  wide // before the factors
	perCall wide
	before  uint64 // nano-units of earlier steps
	ok      bool   // nothing overflowed
}

// next adds classes and returns how much they add to the rounded sum.
func (r *running) next(classes []class) Nano {
	for _, c := range classes {
		var ok bool
		r.tokens, ok = r.tokens.addMul(uint64(c.tokens), c.rate)
		r.ok = r.ok && ok
	}
	sum, a := r.tokens.mul(r.f.num)
	fees, b := r.perCall.mul(r.f.den)
	sum, c := sum.add(fees)
	den, d := (wide{lo: r.f.den}).mul(picoPerNano)
	n, e := sum.ceilDiv(den.lo)
	r.ok = r.ok && a && b && c && d && e && den.hi == 0 && n <= uint64(MaxNano)
	added := n - r.before
	r.before = n
	return Nano(added)
}

// fees adds calls at a separate rate, which no factor scales.
func (r *running) fees(n int64, rate uint64) {
	var ok bool
	r.perCall, ok = r.perCall.addMul(uint64(n), rate)
	r.ok = r.ok && ok
}
