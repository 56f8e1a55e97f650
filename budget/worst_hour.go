package budget

import (
	"math"
	"math/bits"
	"time"
)

// MostPerHour returns the maximum that a limit of this shape and amount admits in one clock hour:
//
//   - window, exact window: amount * ceil(1h / window), at least the amount once;
//   - calendar: amount * 60 for minutes, otherwise the amount once;
//   - bucket: the capacity plus an hour's refill: capacity + refill * 1h / per.
//
// The result is in the unit of the amount, and math.MaxInt64 if it is unbounded or overflows.
func (s Shape) MostPerHour(amount int64) int64 {
	switch s.Kind {
	case Window, ExactWindow:
		return ceilScaled(amount, int64((time.Hour+s.Window-1)/s.Window), 1)
	case Calendar:
		if s.Calendar == "minute" {
			return ceilScaled(amount, 60, 1)
		}
	case Bucket:
		if s.Refill > 0 {
			refilled := ceilScaled(s.Refill, int64(time.Hour), int64(s.Per))
			return amount + min(refilled, math.MaxInt64-amount)
		}
	case Concurrent: // calls may follow one another without limit
		return math.MaxInt64
	}
	return amount
}

// ceilScaled returns n*times/per rounded up, or math.MaxInt64 if that overflows. No argument is
// negative, and per is above 0.
func ceilScaled(n, times, per int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(times))
	lo, carry := bits.Add64(lo, uint64(per-1), 0)
	hi += carry
	if hi >= uint64(per) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(per))
	return int64(min(q, math.MaxInt64))
}
