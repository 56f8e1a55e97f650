package budget

import (
	"math"
	"time"
)

// Endless stands for a time without end, such as until a bucket without refill is
// empty. Times of more than 100 years count as endless.
const Endless time.Duration = math.MaxInt64

const century = 36525 * 24 * time.Hour

// Lasting returns a number of seconds as a duration, Endless when that is what it
// comes to.
func Lasting(seconds float64) time.Duration {
	if !(seconds < century.Seconds()) {
		return Endless
	}
	return time.Duration(max(0, seconds) * float64(time.Second))
}

// LastingText prints a duration in whole seconds, or "never" when it does not end.
func LastingText(d time.Duration) string {
	if d > century {
		return "never"
	}
	return d.Round(time.Second).String()
}

// secondsJSON is a duration in JSON: null when it does not end.
func secondsJSON(d time.Duration) *float64 {
	if d > century {
		return nil
	}
	s := d.Seconds()
	return &s
}
