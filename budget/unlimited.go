package budget

import (
	"fmt"
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

// LastingText prints a duration in its two largest units, "8d 7h" or "1m 30s", or "never" when it
// does not end.
func LastingText(d time.Duration) string {
	if d > century {
		return "never"
	}
	const day = 24 * time.Hour
	for _, unit := range []struct {
		large, small time.Duration
		names        string
	}{{day, time.Hour, "dh"}, {time.Hour, time.Minute, "hm"}, {time.Minute, time.Second, "ms"}} {
		d := d.Round(unit.small)
		if d < unit.large {
			continue
		}
		text := fmt.Sprintf("%d%c", d/unit.large, unit.names[0])
		if rest := d % unit.large / unit.small; rest > 0 {
			text += fmt.Sprintf(" %d%c", rest, unit.names[1])
		}
		return text
	}
	return fmt.Sprintf("%ds", max(0, d.Round(time.Second)/time.Second))
}

// secondsJSON is a duration in JSON: null when it does not end.
func secondsJSON(d time.Duration) *float64 {
	if d > century {
		return nil
	}
	s := d.Seconds()
	return &s
}
