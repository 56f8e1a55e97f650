package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget/ledger"
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

func (p *period) addZone(c *cobra.Command) {
	c.Flags().StringVar(&p.tz, "tz", "", "time zone of days and hours, such as Europe/Berlin (default: UTC)")
}

func (p *period) zone() (*time.Location, error) {
	zone, err := ledger.Zone(p.tz)
	if err != nil {
		return nil, misused("--tz %s: expected the name of a time zone, such as Europe/Berlin", p.tz)
	}
	return zone, nil
}

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
		_, to, err = ledger.Instant(p.to, now)
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
		from, _, err = ledger.Instant(p.from, now)
		if err != nil {
			return from, to, misused("--from %w", err)
		}
	default:
		from = ledger.Midnight(to.Add(-time.Nanosecond)).AddDate(0, 0, 1-max(p.count, 1))
	}
	if !from.Before(to) {
		return from, to, fmt.Errorf("the period is empty: it starts at %s and ends at %s", from.Format(time.RFC3339),
			to.Format(time.RFC3339))
	}
	return from, to, nil
}

// maxDays is more than the retention of daily sums.
const maxDays = 3660

// hourly reports whether the start or the end is within a day.
func (p *period) hourly() bool { return ledger.WithinDay(p.from) || ledger.WithinDay(p.to) }

// days is bounds in whole days, for daily sums.
func (p *period) days(now time.Time) (from, to time.Time, err error) {
	from, to, err = p.bounds(now)
	if err != nil {
		return from, to, err
	}
	from, to = ledger.WholeDays(from, to)
	if to.Sub(from) > maxDays*24*time.Hour {
		return from, to, fmt.Errorf("the period has more than %d days; daily sums are kept for 400", maxDays)
	}
	return from, to, nil
}
