package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// period is a span of time as flags say it.
type period struct {
	from, to string
	count    int
	tz       string // the zone of its days; empty: UTC
}

func (p *period) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&p.from, "from", "",
		"begin: a day (2026-11-01), month (2026-11), time (2026-11-01T08:00:00Z) or duration ago (7d, 36h)")
	f.StringVar(&p.to, "to", "", "end, in the same forms; a day or month is counted whole (default: now)")
	f.IntVar(&p.count, "days", 0, "instead of --from: so many UTC days, the last one included (default 1)")
}

// addZone gives a command --tz.
func (p *period) addZone(c *cobra.Command) {
	c.Flags().StringVar(&p.tz, "tz", "", "the zone of days and hours, such as Europe/Berlin (default: UTC)")
}

// zone is that of --tz.
func (p *period) zone() (*time.Location, error) {
	if p.tz == "" {
		return time.UTC, nil
	}
	zone, err := time.LoadLocation(p.tz)
	if err != nil {
		return nil, misused("--tz %s: expected the name of a time zone, such as Europe/Berlin", p.tz)
	}
	return zone, nil
}

// midnight is the begin of a time's day, in its zone.
func midnight(t time.Time) time.Time {
	year, month, day := t.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, t.Location())
}

// given reports whether the user named any period.
func (p *period) given() bool { return p.from != "" || p.to != "" || p.count != 0 }

// bounds returns [from, to); without flags it is today.
func (p *period) bounds(now time.Time) (from, to time.Time, err error) {
	zone, err := p.zone()
	if err != nil {
		return from, to, err
	}
	now = now.In(zone)
	to = now
	if p.to != "" {
		_, to, err = instant(p.to, now)
		if err != nil {
			return from, to, misused("--to %w", err)
		}
	}
	switch {
	case p.count < 0:
		return from, to, misused("--days %d: expected 1 or more", p.count)
	case p.from != "" && p.count > 0:
		return from, to, misused("--from and --days are two ways to say the same; use one")
	case p.from != "":
		from, _, err = instant(p.from, now)
		if err != nil {
			return from, to, misused("--from %w", err)
		}
	default:
		from = midnight(to.Add(-time.Nanosecond)).AddDate(0, 0, 1-max(p.count, 1))
	}
	if !from.Before(to) {
		return from, to, fmt.Errorf("the period is empty: it begins at %s and ends at %s", from.Format(time.RFC3339),
			to.Format(time.RFC3339))
	}
	return from, to, nil
}

// maxDays is more than daily sums are kept for.
const maxDays = 3660

// hourly reports whether a begin or an end is within a day: a time, or so many hours ago.
func (p *period) hourly() bool {
	for _, text := range []string{p.from, p.to} {
		if _, err := time.Parse(time.RFC3339, text); err == nil {
			return true
		}
		if _, ok := ago(text); ok && !strings.HasSuffix(text, "d") {
			return true
		}
	}
	return false
}

// days is bounds for daily sums, in whole days.
func (p *period) days(now time.Time) (from, to time.Time, err error) {
	from, to, err = p.bounds(now)
	if err != nil {
		return from, to, err
	}
	from = midnight(from)
	if end := midnight(to); end.Before(to) {
		to = end.AddDate(0, 0, 1)
	}
	if to.Sub(from) > maxDays*24*time.Hour {
		return from, to, fmt.Errorf("the period has more than %d days; daily sums are kept for 400", maxDays)
	}
	return from, to, nil
}

// instant reads a point in time: as the begin of a period, and as its end.
func instant(text string, now time.Time) (begin, end time.Time, err error) {
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
	if d, ok := ago(text); ok {
		return now.Add(-d), now.Add(-d), nil
	}
	return begin, end, fmt.Errorf("%s: expected a day (2026-11-01), a month (2026-11), a time (2026-11-01T08:00:00Z), "+
		"a duration ago (7d, 36h), today or yesterday", text)
}

// ago reads a duration, of days too.
func ago(text string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err == nil
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}
