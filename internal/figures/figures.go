// Package figures is the text of amounts, counts, durations and times for people, the same in the console
// and in commands, and draws the charts of both. Exact amounts are those of [pricing.Nano].
package figures

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// USD formats nano-USD: $1,234.57 from a dollar up, with four decimals from a cent, and four
// significant digits below. Nothing is rounded to $0.
func USD(n pricing.Nano) string {
	switch abs := max(n, -n); {
	case abs == 0:
		return "$0"
	case abs < pricing.NanoPerUSD/100:
		return n.Short()
	case abs < pricing.NanoPerUSD:
		return n.Rounded(4)
	}
	sign, digits, _ := strings.Cut(n.Rounded(2), "$")
	whole, cents, _ := strings.Cut(digits, ".")
	return sign + "$" + thousands(whole) + "." + cents
}

// Money formats nano-USD for outputs that can be exact: with all nine decimals, or with cents from a dollar up
// and four significant digits below, without separators.
func Money(n pricing.Nano, exact bool) string {
	if exact {
		return n.String()
	}
	return n.Short()
}

// Count formats an integer with thousands separators.
func Count(n int64) string {
	if n < 0 {
		return "-" + thousands(strconv.FormatInt(n, 10)[1:])
	}
	return thousands(strconv.FormatInt(n, 10))
}

func thousands(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Plural formats a count of things: "1 org", "2 orgs", "3 entries", "4 keys".
func Plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok && strings.TrimRight(stem, "aeou") == stem {
		thing = stem + "ie"
	}
	return Count(n) + " " + thing + "s"
}

// Share formats a part of a whole: 12 %, or < 1 %, and nothing if there is none.
func Share(part, all int64) string {
	switch {
	case all <= 0 || part <= 0:
		return ""
	case part*100 < all:
		return "< 1 %"
	}
	return Count(part*100/all) + " %"
}

// Compact formats a number in six characters: 950, 12.3k, 4.0M.
func Compact(n int64) string {
	switch {
	case n < 10_000:
		return strconv.FormatInt(n, 10)
	case n < 1_000_000:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}

// Age formats a duration with its largest unit: 12s, 5m, 3h, and days from 48 hours. A negative one is
// 0s.
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, d/time.Second))
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// Span is Lasting for durations that can be short: 12ms, 1.5s, 5m 3s. A negative one is 0ms.
func Span(d time.Duration) string {
	switch tenths := d.Round(100 * time.Millisecond); {
	case d < time.Second:
		return strconv.Itoa(max(int(d.Milliseconds()), 0)) + "ms"
	case tenths < time.Minute:
		return tenths.String()
	}
	return Lasting(d)
}

// Lasting formats a duration in its two largest units, "8d 7h" or "1m 30s", and more than a
// century as "never".
func Lasting(d time.Duration) string {
	if d > 36525*24*time.Hour {
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

// About formats how long something will last, as exactly as a forecast can be: "about 3h".
func About(d time.Duration) string {
	switch {
	case d <= 0:
		return "used up"
	case d < time.Minute:
		return "under 1m"
	case d < 10*time.Minute:
		d = d.Truncate(time.Minute)
	case d < 2*time.Hour:
		d = d.Truncate(5 * time.Minute)
	case d < 48*time.Hour:
		d = d.Truncate(time.Hour)
	default:
		d = d.Truncate(24 * time.Hour)
	}
	return "about " + Lasting(d)
}

const (
	minute = "2006-01-02 15:04"
	zone   = " UTC"
)

// Minute formats a time for people: 2026-11-01 08:00 UTC. Every time for people is in UTC and ends with that, except
// in a column whose heading says (UTC), see [Cell]. Days are written as [time.DateOnly], for people and programs. What
// programs read too (answers and errors of the API, logs) is RFC 3339.
func Minute(t time.Time) string { return t.UTC().Format(minute) + zone }

// Second is Minute with seconds.
func Second(t time.Time) string { return t.UTC().Format(time.DateTime) + zone }

// Clock formats a time of a day that is known: 08:00:05 UTC.
func Clock(t time.Time) string { return t.UTC().Format(time.TimeOnly) + zone }

// Cell removes UTC from a text of the functions above, for a column whose heading says it.
func Cell(text string) string { return strings.TrimSuffix(text, zone) }

// Between formats a period in the time zone of its ends, with seconds if it is shorter than an hour: "from
// 2026-11-01 08:00 to 2026-11-02 08:00 UTC".
func Between(from, to time.Time) string {
	layout := minute + " MST"
	if to.Sub(from) < time.Hour {
		layout = time.DateTime + " MST"
	}
	return "from " + strings.TrimSuffix(from.Format(layout), to.Format(" MST")) + " to " + to.Format(layout)
}

// Month formats a month: November 2026.
func Month(t time.Time) string { return t.Format("January 2006") }

// Mark formats a mark of a time axis: a day if marks are that far apart, otherwise the time of day, with the day if
// the axis is longer than one.
func Mark(t time.Time, step, axis time.Duration) string {
	form := "15:04"
	switch {
	case step >= 24*time.Hour:
		form = "Jan 2"
	case axis > 24*time.Hour:
		form = "Jan 2 15:04"
	case step < time.Minute:
		form = time.TimeOnly
	}
	return t.UTC().Format(form)
}
