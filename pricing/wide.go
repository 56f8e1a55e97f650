package pricing

import "math/bits"

// wide is an unsigned 128-bit sum of pico-USD. Every operation reports an
// overflow instead of wrapping.
type wide struct{ hi, lo uint64 }

// addMul returns w + a*b.
func (w wide) addMul(a, b uint64) (wide, bool) {
	hi, lo := bits.Mul64(a, b)
	return w.add(wide{hi, lo})
}

func (w wide) add(x wide) (wide, bool) {
	lo, carry := bits.Add64(w.lo, x.lo, 0)
	hi, carry := bits.Add64(w.hi, x.hi, carry)
	return wide{hi, lo}, carry == 0
}

// mul returns w*n.
func (w wide) mul(n uint64) (wide, bool) {
	carryHi, lo := bits.Mul64(w.lo, n)
	over, hi := bits.Mul64(w.hi, n)
	hi, carry := bits.Add64(hi, carryHi, 0)
	return wide{hi, lo}, over == 0 && carry == 0
}

// ceilDiv returns w/d rounded up; ok is false when that does not fit 64 bits.
func (w wide) ceilDiv(d uint64) (q uint64, ok bool) {
	if d == 0 || w.hi >= d {
		return 0, false
	}
	q, rem := bits.Div64(w.hi, w.lo, d)
	if rem == 0 {
		return q, true
	}
	return q + 1, q+1 != 0
}
