package budget

import (
	"context"
	"slices"
	"time"
)

// UsageQuery selects sums of one org.
type UsageQuery struct {
	Org      string
	From, To time.Time // whole UTC days, or whole hours with Hours
	Hours    bool      // sums of hours, where there are any, instead of days
	Filter   Filter
	// By are dimensions to keep apart, in addition to those that sums of days have.
	By []Dimension
}

// FromEntries reports whether sums of days and hours cannot answer the query, so that ledger entries
// are read: the newest MaxSpendScan.
func (q *UsageQuery) FromEntries() bool {
	return !q.Filter.rolled() || slices.ContainsFunc(q.By, func(d Dimension) bool { return !d.rolled })
}

// Usage returns sums of calls that meet the filter, by day or hour and all dimensions that sums of
// days have. since is set if entries before it were not read, because there are too many or they are
// no longer in the ledger.
func (l *Ledger) Usage(ctx context.Context, q UsageQuery) (list []Rollup, since time.Time, err error) {
	if q.FromEntries() {
		return l.usageOfEntries(ctx, &q)
	}
	read := l.Rollups
	if q.Hours {
		read = l.HourRollups
	}
	list, err = read(ctx, q.Org, q.From, q.To)
	list = slices.DeleteFunc(list, func(r Rollup) bool {
		c := r.call(q.Org)
		return !q.Filter.takes(&c)
	})
	return list, since, err
}

func (l *Ledger) usageOfEntries(ctx context.Context, q *UsageQuery) ([]Rollup, time.Time, error) {
	unit := 24 * time.Hour
	if q.Hours {
		unit = time.Hour
	}
	end := q.To.UTC().Truncate(unit)
	if end.Before(q.To) {
		end = end.Add(unit)
	}
	sums := map[Rollup]*Sums{}
	in := entryScan{q.Org, q.From.UTC().Truncate(unit), end, MaxSpendScan}
	since, err := l.newest(ctx, in, func(e *Entry) {
		if !q.Filter.Fits(e) {
			return
		}
		r := q.rollupOf(e)
		r.Begin = e.At.UTC().Truncate(unit)
		if sums[r] == nil {
			sums[r] = &Sums{}
		}
		sums[r].Add(e.Sums())
	})
	out := make([]Rollup, 0, len(sums))
	for r, s := range sums {
		r.Sums = *s
		out = append(out, r)
	}
	slices.SortFunc(out, compareRollups)
	return out, since, err
}

// rollupOf returns the roll-up that an entry belongs to, without time and sums.
func (q *UsageQuery) rollupOf(e *Entry) Rollup {
	r := Rollup{
		Hour: q.Hours, User: e.User, Key: e.Key, Provider: e.Provider, Endpoint: e.Endpoint, Model: RollupModel(e.Model),
	}
	for _, d := range q.By {
		switch label := d.Label(); {
		case d.Name == RunDimension:
			r.Run = e.Run
		case label != "":
			r.Labels = r.Labels.With(label, e.Labels.Get(label))
		}
	}
	return r
}
