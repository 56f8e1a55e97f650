package budget

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// period divides time: into the units of a calendar, or into windows of one length that are aligned
// to the Unix epoch.
type period struct {
	every   time.Duration // of a fixed window; 0 for calendars
	unit    string        // minute, hour, day, week; empty for months and years
	weekday time.Weekday  // on which a week starts
	months  int           // length of months, quarters and years
	month   time.Month    // one of the months in which a quarter or year starts
	day     int           // of the month, on which months, quarters and years start
}

// lastStart is the last day of a month on which a period may start. Every month has it.
const lastStart = 28

var weekdays = []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// parsePeriod parses a fixed window's length ("5m0s"), or a calendar period with an optional start
// after "@": "month@15", "week@sunday", "year@04-06", "quarter@02-01".
func parsePeriod(text string) (period, error) {
	name, start, _ := strings.Cut(text, "@")
	switch name {
	case "minute", "hour", "day":
		if start != "" {
			return period{}, fmt.Errorf("a calendar %s has no other start than its first moment, not %q", name, start)
		}
		return period{unit: name}, nil
	case "week":
		weekday, err := weekdayNamed(start)
		return period{unit: name, weekday: weekday}, err
	case "month":
		day, err := startDay(start)
		return period{months: 1, month: time.January, day: day}, err
	case "quarter":
		return startDate(start, 3)
	case "year":
		return startDate(start, 12)
	}
	every, err := time.ParseDuration(name)
	if err != nil || start != "" {
		return period{}, fmt.Errorf("unknown calendar period %q", text)
	}
	return period{every: every}, inRange("window", every, time.Second, maxWindow)
}

func weekdayNamed(text string) (time.Weekday, error) {
	if text == "" {
		return time.Monday, nil
	}
	i := slices.Index(weekdays, text)
	if i < 0 {
		return 0, fmt.Errorf("a week starts on a day such as sunday, not %q", text)
	}
	return time.Weekday(i), nil
}

// startDay parses the day of a month on which periods start.
func startDay(text string) (int, error) {
	if text == "" {
		return 1, nil
	}
	day, err := strconv.Atoi(text)
	if err != nil || day < 1 || day > lastStart {
		return 0, fmt.Errorf("a month starts on a day from 1 to %d, which every month has, not %q", lastStart, text)
	}
	return day, nil
}

// startDate parses the date on which periods of some months start, such as 04-06.
func startDate(text string, months int) (period, error) {
	p := period{months: months, month: time.January, day: 1}
	if text == "" {
		return p, nil
	}
	date, err := time.Parse("01-02", text)
	if err != nil || date.Day() > lastStart {
		return p, fmt.Errorf("a quarter or a year starts on a date such as 04-06, on day 1 to %d, not %q", lastStart, text)
	}
	p.month = date.Month()
	p.day = date.Day()
	return p, nil
}

// lengths returns the minimum and the maximum length of the periods in any zone: clocks may change
// twice in one. Periods that a change of the clocks cuts are not counted in the minimum.
func (p period) lengths() (shortest, longest time.Duration) {
	const day, back, ahead = 24 * time.Hour, time.Hour, 2 * time.Hour
	switch {
	case p.every > 0:
		return p.every, p.every
	case p.unit == "minute":
		return time.Minute, time.Minute
	case p.unit == "hour":
		return time.Hour, ahead
	case p.unit == "day":
		return day - back, day + ahead
	case p.unit == "week":
		return 7*day - back, 7*day + ahead
	}
	days := map[int][2]time.Duration{1: {28, 31}, 3: {90, 92}, 12: {365, 366}}[p.months]
	return days[0]*day - back, days[1]*day + ahead
}

// ShortestPeriod returns the minimum length of the periods of a Calendar or Fixed shape, and 0 for
// other shapes. Hours and minutes that a change of the clocks cuts short are left out.
func (s Shape) ShortestPeriod() time.Duration {
	p, _, err := s.period()
	if err != nil {
		return 0
	}
	shortest, _ := p.lengths()
	return shortest
}

// start returns the first instant of the period that contains t, in t's zone. A local hour or minute
// that is repeated when the clocks change counts as two periods.
func (p period) start(t time.Time) time.Time {
	y, m, d := t.Date()
	switch {
	case p.every > 0:
		return p.aligned(t)
	case p.unit == "week":
		return dayStart(y, m, d-(int(t.Weekday()-p.weekday)+7)%7, t.Location())
	case p.unit == "day":
		return dayStart(y, m, d, t.Location())
	case p.months > 0:
		return p.monthStart(t)
	}
	into := time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
	if p.unit == "hour" {
		into += time.Duration(t.Minute()) * time.Minute
	}
	start := t.Add(-into)
	if from, _ := t.ZoneBounds(); start.Before(from) && offset(start) != offset(t) {
		return from
	}
	return start
}

// aligned returns the start of a fixed window. time.Truncate would count from the year 1.
func (p period) aligned(t time.Time) time.Time {
	into := time.Duration(t.UnixMicro()%p.every.Microseconds()) * time.Microsecond
	return time.UnixMicro(t.UnixMicro()).Add(-into).In(t.Location())
}

// monthStart returns the first instant of the months, quarter or year that contains t.
func (p period) monthStart(t time.Time) time.Time {
	y, m, _ := t.Date()
	m -= time.Month((int(m-p.month) + 12) % p.months)
	start := dayStart(y, m, p.day, t.Location())
	if start.After(t) {
		start = dayStart(y, m-time.Month(p.months), p.day, t.Location())
	}
	return start
}

// next returns the first instant of the period after the one starting at start.
func (p period) next(start time.Time) time.Time {
	y, m, d := start.Date()
	loc := start.Location()
	switch {
	case p.every > 0:
		return start.Add(p.every)
	case p.months > 0:
		return p.monthStart(dayStart(y, m+time.Month(p.months), d, loc))
	case p.unit == "week":
		return dayStart(y, m, d+7, loc)
	case p.unit == "day":
		return dayStart(y, m, d+1, loc)
	}
	step := time.Hour
	if p.unit == "minute" {
		step = time.Minute
	}
	// A change of the UTC offset may cut a period short; the change is a boundary too.
	next := p.start(start.Add(step))
	if _, change := start.ZoneBounds(); !change.IsZero() && change.Before(next) && offset(change) != offset(start) {
		return change
	}
	if !next.After(start) {
		return start.Add(step)
	}
	return next
}
