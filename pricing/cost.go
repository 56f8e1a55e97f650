package pricing

import "math/bits"

// factors is the product of the applicable multipliers as a reduced fraction.
type factors struct {
	num, den uint64
	ok       bool // false if the product overflows
}

// factorUnit is the Factor x1.
const factorUnit = 10_000

func (f factors) times(x uint64) factors {
	y := uint64(factorUnit)
	g := gcd(x, y)
	x, y = x/g, y/g
	g = gcd(f.num, y)
	f.num, y = f.num/g, y/g
	g = gcd(f.den, x)
	f.den, x = f.den/g, x/g
	num, okNum := (wide{lo: f.num}).mul(x)
	den, okDen := (wide{lo: f.den}).mul(y)
	ok := f.ok && okNum && okDen && num.hi == 0 && den.hi == 0
	return factors{num: num.lo, den: den.lo, ok: ok}
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// picoPerNano is the number of pico-units per nano-unit.
const picoPerNano = 1000

// classes lists the parts of input and output with their rates.
func (r *rates) classes(u *Usage) (in [6]class, out [2]class) {
	in = [6]class{
		{u.CachedInput - u.CachedAudio, r.cached},
		{u.CacheWrite, r.write},
		{u.CacheWrite1h, r.write1h},
		{u.AudioIn - u.CachedAudio, r.audioIn},
		{u.ImageIn, r.imageIn},
		{u.CachedAudio, r.cachedAudio},
	}
	return in, [2]class{{u.AudioOut, r.audioOut}, {u.ImageOut, r.imageOut}}
}

// class is a number of tokens with a separate rate.
type class struct {
	tokens int64
	rate   uint64
}

// wide is an unsigned 128-bit sum of pico-USD. Every operation reports an overflow instead of
// wrapping.
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

// ceilDiv returns w/d rounded up; ok is false if the result does not fit in 64 bits.
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
