package budget

import (
	"math"
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
	times := float64(1)
	more := float64(0)
	switch s.Kind {
	case Window, ExactWindow:
		times = max(1, math.Ceil(float64(time.Hour)/float64(s.Window)))
	case Calendar:
		if s.Calendar == "minute" {
			times = 60
		}
	case Bucket:
		if s.Refill > 0 {
			more = math.Ceil(float64(s.Refill) * float64(time.Hour) / float64(s.Per))
		}
	case Concurrent: // as many calls as come one after the other
		return math.MaxInt64
	}
	if most := float64(amount)*times + more; most < math.MaxInt64 {
		return amount*int64(times) + int64(more)
	}
	return math.MaxInt64
}
