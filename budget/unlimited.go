package budget

import (
	"math"
	"time"
)

// Endless represents an unlimited time, such as until a bucket without refill is empty. Times of
// more than 100 years count as endless.
const Endless time.Duration = math.MaxInt64

const century = 36525 * 24 * time.Hour

// Lasting converts seconds to a duration; Endless if they exceed 100 years.
func Lasting(seconds float64) time.Duration {
	if !(seconds < century.Seconds()) {
		return Endless
	}
	return time.Duration(max(0, seconds) * float64(time.Second))
}

// secondsJSON returns a duration in seconds for JSON: null if it is endless.
func secondsJSON(d time.Duration) *float64 {
	if d > century {
		return nil
	}
	s := d.Seconds()
	return &s
}
