package budget

import (
	"fmt"
	"strconv"
	"sync"
	"time"
)

var periods = map[string]bool{"month": true, "week": true, "day": true, "hour": true, "minute": true}

// zones caches loaded time zones by name, because time.LoadLocation reads files.
var zones sync.Map

func zoneNamed(name string) (*time.Location, error) {
	if z, ok := zones.Load(name); ok {
		return z.(*time.Location), nil
	}
	z, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", name, err)
	}
	zones.Store(name, z)
	return z, nil
}

func (s Shape) zone() string {
	if s.Location == nil {
		return "UTC"
	}
	return s.Location.String()
}

func (s Shape) validateCalendar() error {
	if !periods[s.Calendar] {
		return fmt.Errorf("unknown calendar period %q", s.Calendar)
	}
	_, err := zoneNamed(s.zone())
	return err
}

// Start returns when the window or period that counts at an instant began; false for shapes without
// one.
func (s Shape) Start(at time.Time) (time.Time, bool) {
	switch s.Kind {
	case Window, ExactWindow:
		return at.Add(-s.Window), true
	case Calendar:
		loc, err := zoneNamed(s.zone())
		if err != nil {
			return time.Time{}, false
		}
		return periodStart(s.Calendar, at.In(loc)), true
	}
	return time.Time{}, false
}

// around is the text of the boundaries, valid for any instant in [from, to).
type around struct {
	from, to time.Time
	text     string
}

// lists caches the latest boundaries of each period and zone.
var lists sync.Map

// periodsAround lists the starts of the periods around now, in microseconds: the previous, the
// current and the next two. The script selects by its own clock and reports when its time is
// outside the list.
func periodsAround(period, zone string, now time.Time) (around, error) {
	name := period + " " + zone
	if known, ok := lists.Load(name); ok {
		if a := known.(around); !now.Before(a.from) && now.Before(a.to) {
			return a, nil
		}
	}
	loc, err := zoneNamed(zone)
	if err != nil {
		return around{}, err
	}
	a := boundaries(period, loc, now)
	lists.Store(name, a)
	return a, nil
}

func boundaries(period string, loc *time.Location, now time.Time) around {
	start := periodStart(period, now.In(loc))
	list := []time.Time{periodStart(period, start.Add(-time.Nanosecond)), start}
	for range 2 {
		start = nextPeriod(period, start)
		list = append(list, start)
	}
	var out []byte
	for i, t := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, t.UnixMicro(), 10)
	}
	return around{from: list[1], to: list[2], text: string(out)}
}

// Began returns the start of what a limit counts now: its window, its period, or the time in which
// its bucket fills from empty.
func (s Shape) Began(now time.Time) time.Time {
	if s.Kind != Calendar {
		return now.Add(-s.span())
	}
	zone, err := zoneNamed(s.zone())
	if err != nil {
		zone = time.UTC
	}
	return periodStart(s.Calendar, now.In(zone))
}

// periodStart returns the first instant of the period that contains t. A local hour or minute that
// is repeated when the clocks change counts as two periods.
func periodStart(period string, t time.Time) time.Time {
	y, m, d := t.Date()
	switch period {
	case "month":
		return dayStart(y, m, 1, t.Location())
	case "week":
		return dayStart(y, m, d-(int(t.Weekday())+6)%7, t.Location())
	case "day":
		return dayStart(y, m, d, t.Location())
	}
	into := time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
	if period == "hour" {
		into += time.Duration(t.Minute()) * time.Minute
	}
	start := t.Add(-into)
	if from, _ := t.ZoneBounds(); start.Before(from) && offset(start) != offset(t) {
		return from
	}
	return start
}

// nextPeriod returns the first instant of the period after the one starting
// at start.
func nextPeriod(period string, start time.Time) time.Time {
	y, m, d := start.Date()
	loc := start.Location()
	switch period {
	case "month":
		return dayStart(y, m+1, 1, loc)
	case "week":
		return dayStart(y, m, d+7, loc)
	case "day":
		return dayStart(y, m, d+1, loc)
	}
	step := time.Hour
	if period == "minute" {
		step = time.Minute
	}
	// A change of the UTC offset may cut a period short; the change is a boundary too.
	next := periodStart(period, start.Add(step))
	if _, change := start.ZoneBounds(); !change.IsZero() && change.Before(next) && offset(change) != offset(start) {
		return change
	}
	if !next.After(start) {
		return start.Add(step)
	}
	return next
}

// dayStart returns the first instant of a local day, also when the clocks change at midnight: if
// midnight is skipped, the day starts at the change; if it occurs twice, at the first one. A day
// that the zone skipped altogether starts where the next one does.
func dayStart(y int, m time.Month, d int, loc *time.Location) time.Time {
	wall := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	var first time.Time
	for _, near := range []time.Time{wall.Add(-36 * time.Hour), wall.Add(36 * time.Hour)} {
		from, to := near.In(loc).ZoneBounds()
		try := []time.Time{wall.Add(-time.Duration(offset(near.In(loc))) * time.Second), from, to}
		for _, at := range try {
			if at.IsZero() {
				continue
			}
			at = at.In(loc)
			if !dateOf(at).Before(wall) && dateOf(at.Add(-time.Nanosecond)).Before(wall) &&
				(first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	if first.IsZero() { // two changes within three days
		return time.Date(y, m, d, 0, 0, 0, 0, loc)
	}
	return first
}

func offset(t time.Time) int {
	_, seconds := t.Zone()
	return seconds
}

// dateOf returns t's local date as midnight UTC, to compare dates.
func dateOf(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}
