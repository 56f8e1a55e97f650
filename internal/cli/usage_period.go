package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// period is a time span given by flags.
type period struct {
	from, to string
	count    int
	tz       string // time zone of its days; empty: UTC
}

func (p *period) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&p.from, "from", "",
		"start: a day (2026-11-01), month (2026-11), time (2026-11-01T08:00:00Z) or duration ago (7d, 36h)")
	f.StringVar(&p.to, "to", "", "end, in the same formats; the whole day or month is included (default: now)")
	f.IntVar(&p.count, "days", 0, "instead of --from: number of UTC days, including the last (default 1)")
}

// addZone adds --tz to a command.
func (p *period) addZone(c *cobra.Command) {
	c.Flags().StringVar(&p.tz, "tz", "", "time zone of days and hours, such as Europe/Berlin (default: UTC)")
}

// zone returns the location of --tz.
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

// midnight returns the start of t's day, in its zone.
func midnight(t time.Time) time.Time {
	year, month, day := t.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, t.Location())
}

// given reports whether any period flag is set.
func (p *period) given() bool { return p.from != "" || p.to != "" || p.count != 0 }

// bounds returns [from, to); the default is today.
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
		return from, to, misused("--from and --days cannot be combined")
	case p.from != "":
		from, _, err = instant(p.from, now)
		if err != nil {
			return from, to, misused("--from %w", err)
		}
	default:
		from = midnight(to.Add(-time.Nanosecond)).AddDate(0, 0, 1-max(p.count, 1))
	}
	if !from.Before(to) {
		return from, to, fmt.Errorf("the period is empty: it starts at %s and ends at %s", from.Format(time.RFC3339),
			to.Format(time.RFC3339))
	}
	return from, to, nil
}

// maxDays is more than the retention of daily sums.
const maxDays = 3660

// hourly reports whether the start or the end is within a day: a time, or a number of hours
// ago.
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

// days is bounds in whole days, for daily sums.
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

// instant parses a point in time and returns it as the start and as the end of a period.
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

// ago parses a duration, with days allowed.
func ago(text string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err == nil
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}
