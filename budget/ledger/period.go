package ledger

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MostDays is how long a period of one query can be: the retention of daily sums.
const MostDays = 400

// Zone returns the time zone with a name such as Europe/Berlin; empty: UTC.
func Zone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name) // UTC if empty
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("%.80q is no time zone; expected a name such as Europe/Berlin", name)
	}
	return zone, nil
}

// Instant parses a point in time in the zone of now, and returns it as the start and as the end of a
// period: a day, a month, a time, a duration ago, today, yesterday or now.
func Instant(text string, now time.Time) (begin, end time.Time, err error) {
	switch text {
	case "today":
		text = now.Format(time.DateOnly)
	case "yesterday":
		text = now.AddDate(0, 0, -1).Format(time.DateOnly)
	case "now":
		return now, now, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, now.Location()); err == nil {
		return t, t.AddDate(0, 0, 1), nil
	}
	if t, err := time.ParseInLocation("2006-01", text, now.Location()); err == nil {
		return t, t.AddDate(0, 1, 0), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.In(now.Location()), t.In(now.Location()), nil
	}
	if d, ok := Ago(text); ok {
		return now.Add(-d), now.Add(-d), nil
	}
	return begin, end, fmt.Errorf("%.40s: expected a day (2026-11-01), a month (2026-11), a time (2026-11-01T08:00:00Z), "+
		"a duration ago (7d, 36h), today or yesterday", text)
}

// WithinDay reports whether a text that Instant accepts is a time within a day: a time, or a number of
// hours or minutes ago.
func WithinDay(text string) bool {
	if _, err := time.Parse(time.RFC3339, text); err == nil {
		return true
	}
	_, ok := Ago(text)
	return ok && !strings.HasSuffix(text, "d")
}

// Ago parses a duration, with days allowed.
func Ago(text string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err == nil
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

// ParseStep parses the resolution of a series; if empty, it is minutes for a period of up to two hours,
// hours for two days, otherwise days.
func ParseStep(text string, period time.Duration) (time.Duration, error) {
	switch {
	case text != "":
		step, ok := Ago(text)
		if !ok || step < time.Minute || step%time.Minute != 0 || step > MostDays*24*time.Hour {
			return 0, fmt.Errorf("step must be whole minutes, such as 5m, 1h or 1d, not %.40q", text)
		}
		return step, nil
	case period <= 2*time.Hour:
		return time.Minute, nil
	case period <= 49*time.Hour:
		return time.Hour, nil
	}
	return 24 * time.Hour, nil
}

// WholeDays widens a period to whole days of its zone.
func WholeDays(from, to time.Time) (begin, end time.Time) {
	end = Midnight(to)
	if end.Before(to) {
		end = end.AddDate(0, 0, 1)
	}
	return Midnight(from), end
}

// Midnight returns the start of a time's day, in its zone.
func Midnight(t time.Time) time.Time {
	year, month, day := t.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, t.Location())
}
