package ledger

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HourRollups returns the org's hourly sums for the UTC hours that overlap [from, to), as Rollups
// does for days. A day without complete hourly sums, because it is more than 14 days ago or was
// written by a version without them, is returned as a whole day if the period includes all of it;
// otherwise only the known hours are returned.
func (l *Ledger) HourRollups(ctx context.Context, org string, from, to time.Time) ([]Rollup, error) {
	return l.sumsOf(ctx, org, func(place string) ([]Rollup, error) { return l.hourRollups(ctx, place, from, to) })
}

// hourRollups is HourRollups of one place.
func (l *Ledger) hourRollups(ctx context.Context, place string, from, to time.Time) ([]Rollup, error) {
	var out []Rollup
	from = from.UTC().Truncate(time.Hour)
	for day := from.Truncate(24 * time.Hour); day.Before(to); day = day.Add(24 * time.Hour) {
		sums, err := l.rollupsOf(ctx, place, "", day)
		if err != nil {
			return nil, err
		}
		if len(sums) == 0 {
			continue
		}
		hours, err := l.hoursOf(ctx, place, day)
		if err != nil {
			return nil, err
		}
		whole := !day.Before(from) && !day.Add(24*time.Hour).After(to)
		if whole && callsOf(hours) < callsOf(sums) { // read after the day, so complete hours have no less
			out = append(out, sums...)
			continue
		}
		out = append(out, slices.DeleteFunc(hours, func(r Rollup) bool {
			return r.Begin.Before(from) || !r.Begin.Before(to)
		})...)
	}
	return out, nil
}

func callsOf(list []Rollup) (n int64) {
	for i := range list {
		n += list[i].Calls
	}
	return n
}

// hoursOf reads the hours of one UTC day in one place.
func (l *Ledger) hoursOf(ctx context.Context, place string, day time.Time) ([]Rollup, error) {
	var out []Rollup
	err := l.o.Pages.Each(ctx, Key(place, hoursKey(day.Unix()/86400)), "", func(field, text string) error {
		hour, rest, _ := strings.Cut(field, "|")
		n, err := strconv.Atoi(hour)
		if err != nil {
			return fmt.Errorf("ledger: roll-up field %q is not understood", field)
		}
		r, err := decodeRollup(day.Add(time.Duration(n)*time.Hour), rest, text)
		r.Hour = true
		out = append(out, r)
		return err
	})
	slices.SortFunc(out, compareRollups)
	return out, err
}
