package budget

import (
	"math"
	"math/bits"
	"time"
)

// MostPerHour is the most that a limit of this shape and amount admits in one hour of the clock:
//
//   - window, exact window: amount * ceil(1h / window), and at least the amount once;
//   - calendar: amount * 60 for minutes, else the amount once;
//   - bucket: the capacity, and what an hour refills: capacity + refill * 1h / per.
//
// It is in the unit of the amount, and math.MaxInt64 where that is too much to count.
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
	case Concurrent: // as many calls as come one after the other
		return math.MaxInt64
	}
	return amount
}

// ceilScaled is n*times/per, rounded up, and math.MaxInt64 where it is more than that. No
// argument is negative, and per is above 0.
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
