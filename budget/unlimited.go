package budget

import (
	"fmt"
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

// LastingText formats a duration in its two largest units, "8d 7h" or "1m 30s", or as "never" if it
// is endless.
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

// secondsJSON returns a duration in seconds for JSON: null if it is endless.
func secondsJSON(d time.Duration) *float64 {
	if d > century {
		return nil
	}
	s := d.Seconds()
	return &s
}
