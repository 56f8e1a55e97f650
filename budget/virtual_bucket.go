package budget

import (
	"math"
	"math/bits"
	"slices"
)

// bucketTwin is lua/shape_bucket.lua, which explains the dips at its top. Here dips store their own
// whole units, not the difference to the previous one.
type bucketTwin struct {
	units, micros int64 // units drain every micros, in lowest terms

	written bool
	now     int64 // its own time
	lead    int64 // of its time over the clock
	used, f int64 // whole units minus f/micros of one
	held    int64
	busy    int64 // when it was last empty
	dips    []dip // the older ones
	last    dip   // the newest; at is 0 if there is none
}

// dip is a minimum before later charges: whole units minus frac/micros, at a time. until is the
// time of the last dip merged into it; 0 if not known, because the refill changed.
type dip struct{ at, until, whole, frac int64 }

// below reports whether d is lower than e.
func (d dip) below(e dip) bool { return d.whole < e.whole || d.whole == e.whole && d.frac > e.frac }

const (
	dipsTight = 22 // from here on, two dips that are close are merged
	dipsMost  = 29 // beyond this, dipsKept are left
	dipsKept  = 16
	dipNear   = 10_000 // us
)

// clock returns the twin's own time and its lead over the clock.
func (b *bucketTwin) clock(now int64) (own, lead int64) {
	lead = b.lead
	if b.now-now-lead > backMicros {
		lead = b.now - now
	}
	return max(now+lead, b.now), lead
}

// drainedAt returns what is used at now and the twin's own time then; empty if nothing is used.
func (b *bucketTwin) drainedAt(now int64) (clock, used, f int64, empty bool) {
	if !b.written {
		return now, 0, 0, true
	}
	clock, _ = b.clock(now)
	used, f = b.used, b.f
	e := clock - b.now
	if e == 0 || b.units == 0 || used <= 0 {
		return clock, used, f, used <= 0
	}
	hi, lo := bits.Mul64(uint64(e), uint64(b.units))
	lo, carry := bits.Add64(lo, uint64(f), 0)
	hi += carry
	if hi >= uint64(b.micros) {
		return clock, 0, 0, true
	}
	c, rest := bits.Div64(hi, lo, uint64(b.micros))
	if c >= uint64(used) {
		return clock, 0, 0, true
	}
	return clock, used - int64(c), int64(rest), false
}

func (b *bucketTwin) at(now int64) (used, held int64) {
	_, used, _, empty := b.drainedAt(now)
	if empty {
		return 0, 0
	}
	return used, b.held
}

func (b *bucketTwin) look(now, _ int64) (fraction, clock int64) {
	clock, _, fraction, empty := b.drainedAt(now)
	if empty {
		fraction = 0
	}
	if b.written {
		_, lead := b.clock(now)
		clock -= lead
	}
	return fraction, clock
}

func (b *bucketTwin) late(now int64) bool {
	elapsed := now - (b.now - b.lead)
	_, _, _, empty := b.drainedAt(now)
	return !empty && (elapsed < -backMicros || elapsed > seenMicros)
}

func (b *bucketTwin) open(now int64) {
	clock, used, f, empty := b.drainedAt(now)
	if b.written {
		_, b.lead = b.clock(now)
	}
	b.now, b.used, b.f = clock, used, f
	if empty {
		b.used, b.f, b.held, b.busy = 0, 0, 0, clock
		b.forgetDips()
	}
}

// refills reports whether the bucket has the refill of the shape.
func (b *bucketTwin) refills(s Shape) bool {
	units, micros := s.rate()
	return b.units == units && b.micros == micros
}

// refill applies a new refill from now on; the bucket must be open.
func (b *bucketTwin) refill(s Shape) {
	if b.refills(s) {
		return
	}
	b.units, b.micros = s.rate()
	b.f = 0
	for i := range b.dips {
		b.dips[i].changed()
	}
	if b.last.at != 0 {
		b.last.changed()
	}
}

// changed drops the fraction of a dip, because the refill changed.
func (d *dip) changed() {
	if d.frac > 0 {
		d.whole--
	}
	d.frac, d.until = 0, 0
}

func (b *bucketTwin) forgetDips() { b.dips, b.last = b.dips[:0], dip{whole: -1} }

// above drops the last dips that are not below what is used.
func (b *bucketTwin) above() {
	for b.last.whole > b.used || b.last.whole == b.used && b.last.frac <= b.f {
		n := len(b.dips)
		if n == 0 {
			b.forgetDips()
			return
		}
		b.last, b.dips = b.dips[n-1], b.dips[:n-1]
	}
}

func (b *bucketTwin) charge(_ *VirtualHold, n int64, held bool) place {
	if b.now != b.busy {
		b.above()
		if b.last.at != b.now && !b.sinks() {
			if b.last.at != 0 {
				b.dips = append(b.dips, b.last)
			}
			b.last = dip{b.now, b.now, b.used, b.f}
		}
	}
	b.used += n
	if held {
		b.held += n
	}
	return place{at: b.now}
}

// sinks merges what is used now into the last dip, if there are many dips and it is close.
func (b *bucketTwin) sinks() bool {
	if len(b.dips) < dipsTight || b.now-b.last.at > dipNear || b.last.until == 0 {
		return false
	}
	bit := int64(0)
	if b.last.frac != 0 {
		bit = 1
	}
	low := b.lowered(b.last.whole, b.now-b.last.until) - bit
	if low < 0 {
		return false
	}
	b.last.until = b.now
	b.sink(low + bit)
	return true
}

// lowered returns a whole part minus what drains in e us, rounded down.
func (b *bucketTwin) lowered(whole, e int64) int64 {
	x := float64(e) * float64(b.units)
	if x < 1<<53 {
		p := b.micros
		return whole - (e*b.units+p-1)/p
	}
	return whole - int64(math.Floor(x/float64(b.micros)*1.000000000000001)) - 2
}

// sink lowers the last dip and drops the ones before that are not below it.
func (b *bucketTwin) sink(whole int64) {
	b.last.whole = whole
	for len(b.dips) > 0 && !b.dips[len(b.dips)-1].below(b.last) {
		b.dips = b.dips[:len(b.dips)-1]
	}
}

func (b *bucketTwin) merges(p place) bool { return p.at == b.now }

func (b *bucketTwin) change(_ *VirtualHold, p place, from, to int64, open bool) int64 {
	if p.at < b.busy {
		return 0
	}
	if open {
		b.held = max(b.held-from, 0)
	}
	back := from - to
	if back <= 0 {
		return 0
	}
	b.above()
	i, least := b.first(p.at)
	low := least.whole
	if least.frac > 0 {
		low--
	}
	minus := back
	if low < back {
		minus = least.whole // down to nothing, with the fraction
	}
	b.used -= minus
	switch {
	case i <= len(b.dips):
		b.lower(i, minus)
		if low < back {
			i = 0
		}
	case minus < least.whole:
		b.above()
	default:
		b.forgetDips()
		i = 1
	}
	if low >= back {
		return back
	}
	if least.frac > 0 {
		b.finer(i, least.frac)
	}
	return max(low, 0)
}

// first returns the first dip after a time, and its index. The last dip has as index the number of
// older ones; if no dip is after the time, the index is one more and the dip is what is used now.
func (b *bucketTwin) first(at int64) (int, dip) {
	if b.last.at <= at {
		return len(b.dips) + 1, dip{whole: b.used, frac: b.f}
	}
	for i, d := range b.dips {
		if d.at > at {
			return i, d
		}
	}
	return len(b.dips), b.last
}

// lower subtracts n from dip i and all after it, and drops the ones before that are not below it.
func (b *bucketTwin) lower(i int, n int64) {
	if i == len(b.dips) {
		b.sink(b.last.whole - n)
		return
	}
	b.last.whole -= n
	for k := i; k < len(b.dips); k++ {
		b.dips[k].whole -= n
	}
	j := i
	for j > 0 && !b.dips[j-1].below(b.dips[i]) {
		j--
	}
	b.dips = slices.Delete(b.dips, j, i)
}

// finer subtracts a fraction from dip i, from those after it, and from what is used.
func (b *bucketTwin) finer(i int, less int64) {
	take := func(whole, f *int64) {
		if *f < less {
			*f += b.micros
			*whole++
		}
		*f -= less
	}
	for k := i; k < len(b.dips); k++ {
		take(&b.dips[k].whole, &b.dips[k].frac)
	}
	if i <= len(b.dips) {
		take(&b.last.whole, &b.last.frac)
	}
	take(&b.used, &b.f)
}

func (b *bucketTwin) close() {
	if len(b.dips) > dipsMost {
		b.squeeze()
	}
	b.written = true
}

// squeeze reduces the dips to at most dipsKept.
func (b *bucketTwin) squeeze() {
	all := append(b.dips, b.last)
	for share := 0.0625; len(all) > dipsKept && share <= 1; share *= 2 {
		all = b.joined(all, share)
	}
	// Dips close to 0 cannot be lowered: of two, the later gets the value of the earlier.
	for len(all) > dipsKept {
		at := 0
		for i := 1; i < len(all)-1; i++ {
			if all[i+1].whole-all[i].whole < all[at+1].whole-all[at].whole {
				at = i
			}
		}
		all[at+1].whole, all[at+1].frac = all[at].whole, all[at].frac
		all = slices.Delete(all, at, at+1)
	}
	n := len(all) - 1
	b.dips, b.last = all[:n], all[n]
}

// joined makes one pass over all dips: the older a dip is, the longer the span it may represent.
func (b *bucketTwin) joined(all []dip, share float64) []dip {
	k := 0
	for _, d := range all {
		for k > 0 && !all[k-1].below(d) {
			k--
		}
		if k > 0 && float64(d.until-all[k-1].at) <= float64(b.now-all[k-1].at)*share && b.join(&all[k-1], d) {
			for k > 1 && !all[k-2].below(all[k-1]) {
				all[k-2] = all[k-1]
				k--
			}
			continue
		}
		all[k] = d
		k++
	}
	return all[:k]
}

// join lowers a dip by what drained until another, unless it would fall below 0.
func (b *bucketTwin) join(d *dip, with dip) bool {
	if d.until == 0 {
		return false
	}
	low := b.lowered(d.whole, with.until-d.until)
	if low < 0 || low < 1 && d.frac > 0 {
		return false
	}
	d.whole, d.until = low, with.until
	return true
}
