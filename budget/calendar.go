package budget

import (
	"fmt"
	"strconv"
	"sync"
	"time"
)

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

// periodText names the periods of a Calendar or Fixed shape, for parsePeriod. It is a part of the
// limit's key in Redis.
func (s Shape) periodText() string {
	switch {
	case s.Kind == Fixed:
		return s.Window.String()
	case s.Starts != "":
		return s.Calendar + "@" + s.Starts
	default:
		return s.Calendar
	}
}

// period returns the periods of a validated Calendar or Fixed shape, and their zone.
func (s Shape) period() (period, *time.Location, error) {
	p, err := parsePeriod(s.periodText())
	if err != nil {
		return period{}, nil, err
	}
	zone, err := zoneNamed(s.zone())
	return p, zone, err
}

// Start returns when the window or period that counts at an instant began; false for shapes without
// one.
func (s Shape) Start(at time.Time) (time.Time, bool) {
	switch s.Kind {
	case Window, ExactWindow:
		return at.Add(-s.Window), true
	case Fixed, Calendar:
		p, zone, err := s.period()
		if err != nil {
			return time.Time{}, false
		}
		return p.start(at.In(zone)), true
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
	p, err := parsePeriod(period)
	if err != nil {
		return around{}, err
	}
	loc, err := zoneNamed(zone)
	if err != nil {
		return around{}, err
	}
	a := p.boundaries(loc, now)
	lists.Store(name, a)
	return a, nil
}

func (p period) boundaries(loc *time.Location, now time.Time) around {
	start := p.start(now.In(loc))
	list := []time.Time{p.start(start.Add(-time.Nanosecond)), start}
	for range 2 {
		start = p.next(start)
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
	if s.Kind == Fixed || s.Kind == Calendar {
		if start, ok := s.Start(now); ok {
			return start
		}
	}
	return now.Add(-s.Span())
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
