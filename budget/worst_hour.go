package budget

import (
	"math"
	"math/bits"
	"time"
)

// MostPerHour returns the maximum that a limit of this shape and amount admits in one clock hour:
//
//   - window, exact window: amount * ceil(1h / window), at least the amount once;
//   - fixed window: amount * the number of windows that a clock hour can touch;
//   - calendar: amount * 60 for minutes, otherwise the amount once;
//   - bucket: the capacity plus an hour's refill: capacity + refill * 1h / per.
//
// The result is in the unit of the amount, and math.MaxInt64 if it is unbounded or overflows.
func (s Shape) MostPerHour(amount int64) int64 {
	switch s.Kind {
	case Window, ExactWindow:
		return ceilScaled(amount, int64((time.Hour+s.Window-1)/s.Window), 1)
	case Fixed:
		return ceilScaled(amount, windowsPerHour(s.Window), 1)
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

// windowsPerHour returns the number of fixed windows of this length that a clock hour can touch. Hours
// and windows are aligned to the epoch, so they begin together where one length divides the other.
func windowsPerHour(window time.Duration) int64 {
	if window%time.Hour == 0 {
		return 1
	}
	whole := int64(time.Hour / window)
	if time.Hour%window == 0 {
		return whole
	}
	return whole + 2 // one that began before, and one that goes on
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
